"""One token per character, as a Hugging Face tokenizer that loads with no code of ours.

Left out: any merging of characters. Masks must come from lengths, never from comparing ids with the pad id: a
tokenizer that the user brings may have no pad token of its own.
"""

from __future__ import annotations

from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from labcore.errors import LabError, first_line

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
BASE_CHARACTERS = "\n" + "".join(map(chr, range(32, 127)))


def character_tokenizer(extra_text: str = "") -> PreTrainedTokenizerFast:
    """A tokenizer of printable ASCII, the newline and the characters of `extra_text`.

    Pad, end and unknown are ids 0, 1 and 2. Text that spells "<eos>" is five characters, not the end token.
    """
    characters = BASE_CHARACTERS + "".join(sorted(set(extra_text) - set(BASE_CHARACTERS)))
    return _of_tokens([PAD, EOS, UNKNOWN, *characters], PAD, UNKNOWN)


def letter_tokenizer(letters: str) -> PreTrainedTokenizerFast:
    """A tokenizer of the end token, id 0, and of `letters` alone: a policy then has no token that is never asked for.

    The end pads too, which is safe since masks come from lengths, and stands for any other character.
    """
    return _of_tokens([EOS, *letters], EOS, EOS)


def _of_tokens(tokens: list[str], pad: str, unknown: str) -> PreTrainedTokenizerFast:
    ids = {token: index for index, token in enumerate(tokens)}
    backend = Tokenizer(models.WordLevel(ids, unk_token=unknown))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()  # joins the characters with nothing between them
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=pad, eos_token=EOS, unk_token=unknown, padding_side="left",
        split_special_tokens=True, clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def with_padding(tokenizer: PreTrainedTokenizerBase, embeddings: int) -> PreTrainedTokenizerBase:
    """`tokenizer` with padding on the left and, if possible, a pad id that differs from its end token.

    `embeddings` is the number of rows in the model's embedding. A missing pad token takes a row that no token uses,
    or else the unknown or another special token that is neither an end nor a beginning. Where there is nothing, the
    end token pads, which is safe as long as masks come from lengths.
    """
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is not None and tokenizer.pad_token_id != tokenizer.eos_token_id:
        return tokenizer
    vocabulary = tokenizer.get_vocab()
    used = {tokenizer.eos_token_id, tokenizer.bos_token_id}
    special = [token for token in tokenizer.all_special_tokens
               if vocabulary[token] not in used and vocabulary[token] < embeddings]
    # A new token's id is the number of tokens, which is free only where the ids have no holes.
    if PAD not in vocabulary and max(vocabulary.values()) + 1 == len(vocabulary) < embeddings:
        tokenizer.add_special_tokens({"pad_token": PAD})
    elif special or tokenizer.pad_token_id is None:
        tokenizer.pad_token = special[0] if special else tokenizer.eos_token
    return tokenizer


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer saved in `folder`.

    Raises:
        LabError: there is none, or it cannot be read without code of its own.
    """
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    # A broken tokenizer.json raises the Rust library's bare Exception.
    except Exception as error:
        raise LabError(f"The tokenizer in {folder} cannot be loaded ({first_line(error)[:300]}): save it again as "
                       "tokenizer.json with tokenizer.save_pretrained.") from error


def check_end(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Raise LabError where a policy's tokenizer has no end token: its completions could not end."""
    if tokenizer.eos_token_id is None:
        raise LabError(f"The tokenizer in {folder} has no end-of-text token, so answers could not end: set eos_token "
                       "in its tokenizer_config.json.")
