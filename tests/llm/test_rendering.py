"""Prompts and answers become the ids that a model was trained on, as its tokenizer and its template make them."""

from dataclasses import replace

import pytest
import torch
from tokenizers import models, processors
from transformers import PreTrainedTokenizerFast

from labcore.errors import LabError
from labcore.llm.batch import decode
from labcore.llm.nets.tokenizer import character_tokenizer
from labcore.llm.rendering import Rendering, encode_answers, encode_examples, encode_prompts, ends_of
from labcore.tasks.task import Pair, Problem, Turn
from tests.llm.tokenizers import CHATML, CHATML_MARKED, GEMMA, STRIPS, THINKING, Model, byte_level, sentencepiece
from tests.words import saying

CPU = torch.device("cpu")
ASKED = [{"role": "user", "content": "What is 2 and 3?"}]
SAID = [*ASKED, {"role": "assistant", "content": "5"}, {"role": "user", "content": "and 6?"}]
TURNS = tuple(Turn(turn["role"], turn["content"]) for turn in SAID)
CHATS = {"byte level": byte_level(), "its own BOS": byte_level(bos=True), "no system": byte_level(GEMMA, bos=True),
         "thinking": byte_level(THINKING), "sentencepiece": sentencepiece(byte_level().chat_template)}


def rendering(tokenizer, eos=None, **knobs) -> Rendering:
    return Rendering.of(tokenizer, Model(eos), knobs)


def templated(tokenizer, turns, **given) -> list[int]:
    return tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True, **given)["input_ids"]


@pytest.fixture(params=CHATS)
def chat(request):
    return CHATS[request.param]


def test_a_text_for_a_chat_model_is_a_user_turn(chat):
    found = rendering(chat).prompts([Problem("What is 2 and 3?", "5")])
    assert found == [templated(chat, ASKED, add_generation_prompt=True)]


def test_a_conversation_is_rendered_whole(chat):
    found = rendering(chat).prompts([Problem("and 6?", "", turns=TURNS)])
    assert found == [templated(chat, SAID, add_generation_prompt=True)]


def test_an_answer_is_encoded_with_its_prompt(chat):
    (prompt,), (answer,) = rendering(chat).answers([Problem("What is 2 and 3?", "")], ["5"], [True])
    whole = templated(chat, [*ASKED, {"role": "assistant", "content": "5"}])
    assert prompt + answer == whole
    assert len(prompt) == common(templated(chat, ASKED, add_generation_prompt=True), whole)


def common(one, other):
    return next((place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(one))


def test_an_answer_that_was_cut_has_no_end(chat):
    _, (ended, cut) = rendering(chat).answers([Problem("What is 2 and 3?", "")], ["5", "5"], [True, False])
    assert ended[:len(cut)] == cut and chat.decode(cut).strip() == "5" and len(ended) > len(cut)


def test_two_sides_share_the_prompt_that_both_begin_with():
    """SentencePiece and byte pairs may merge a prompt's end with an answer's beginning."""
    tokenizer = byte_level(None)
    tokenizer.backend_tokenizer.model = merged(tokenizer)
    prompts, (chosen, rejected) = rendering(tokenizer).answers([Pair("ab", "c", "x")], ["c", "x"], [True, True])
    assert [tokenizer.decode(ids) for ids in (*prompts, chosen, rejected)] == ["a", "bc<|im_end|>", "bx<|im_end|>"]


def merged(tokenizer):
    vocabulary = tokenizer.get_vocab()
    return models.BPE({**vocabulary, "bc": len(vocabulary)}, [("b", "c")])


@pytest.mark.parametrize("texts, expected", [
    (["cx"], ["bc", "x<|im_end|>"]), (["c"], ["bc", "<|im_end|>"]), (["cx", "c"], ["bc", "x<|im_end|>", "<|im_end|>"]),
    (["c", "x"], ["b", "c<|im_end|>", "x<|im_end|>"])])
def test_a_prompt_of_one_token_may_merge_with_its_answers(texts, expected):
    """Nothing is shared then. TRL learns from all but the first token, which no model predicts."""
    tokenizer = byte_level(None)
    tokenizer.backend_tokenizer.model = merged(tokenizer)
    prompts, completions = encode_answers(rendering(tokenizer), [Problem("b", "", 3)], texts, 20, CPU)
    found = [*prompts.ids, *(ids[mask] for ids, mask in zip(completions.ids, completions.mask, strict=True))]
    assert [tokenizer.decode(ids) for ids in found] == expected


@pytest.mark.parametrize("bos", [False, True])
def test_an_end_that_the_tokenizer_adds_ends_no_prompt(bos):
    """As add_eos_token of Llama's and the tokenizers of embedding models have it."""
    tokenizer, plain_one = byte_level(None, bos=bos), byte_level(None, bos=bos)
    front = "<s> " * bos
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{front}$A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    assert tokenizer("Hello")["input_ids"][-1] == 2
    assert rendering(tokenizer).prompts([Problem("Hello", "")]) == [plain_one("Hello")["input_ids"]]
    assert rendering(tokenizer).answers([Problem("Hello", "")], ["Yes"], [True]) == rendering(plain_one).answers(
        [Problem("Hello", "")], ["Yes"], [True])


def test_sampled_answers_are_the_tokens_that_were_sampled():
    """The template takes thoughts out of earlier turns, and a text may encode in another way than it was sampled."""
    tokenizer = byte_level(CHATML.replace("m['content'] +", "m['content'].split('</think>')[-1] +"))
    text = "<think>2+3</think>5"
    ids = (*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)
    found, row = rendering(tokenizer), Problem("What is 2 and 3?", "")
    prompts, answers = found.answers([row], [text], [True], [ids])
    assert tokenizer.decode(found.answers([row], [text], [True])[1][0]) == "5<|im_end|>\n"
    assert (prompts, answers) == (found.prompts([row]), [[*ids]])
    _, (given, sampled) = found.answers([row], ["5", text], [True, True], [None, ids])
    assert tokenizer.decode(given) == "5<|im_end|>\n" and sampled == [*ids]


def test_a_prompt_that_is_too_long_can_lose_its_beginning():
    found = replace(rendering(byte_level(None)), most=3)
    assert found.prompts([Problem("abcdef", ""), Problem("ab", "")]) == rendering(byte_level(None)).prompts(
        [Problem("def", ""), Problem("ab", "")])
    assert found.answers([Problem("abcdef", "")], ["x"], [True]) == rendering(byte_level(None)).answers(
        [Problem("def", "")], ["x"], [True])


@pytest.mark.parametrize("tokenizer", [byte_level(None, bos=True), sentencepiece(), character_tokenizer()],
                         ids=["BOS", "sentencepiece", "characters"])
def test_plain_text_has_the_tokenizers_own_encoding(tokenizer):
    found = rendering(tokenizer)
    assert found.prompts([Problem("What is 2", "")]) == [tokenizer("What is 2")["input_ids"]]
    (prompt,), (answer,) = found.answers([Problem("What is 2", "")], [" and 3"], [True])
    assert prompt + answer == [*tokenizer("What is 2 and 3")["input_ids"], tokenizer.eos_token_id]
    if tokenizer.name_or_path or "<s>" in tokenizer.get_vocab():
        assert prompt[0] == tokenizer.convert_tokens_to_ids("<s>") and "<s>" not in tokenizer.decode(answer)


def test_pictures_have_the_prompt_as_the_model_reads_it_where_that_is_another_text():
    plain, chat = rendering(character_tokenizer()), rendering(CHATS["byte level"])
    assert plain.shown(Problem("ba=", "")) == {"prompt": "ba="}
    shown = chat.shown(Problem("and 6?", "", turns=TURNS))
    assert shown["prompt"] == "and 6?" and shown["rendered"] == chat.text(Problem("and 6?", "", turns=TURNS))
    assert shown["rendered"].startswith("<|im_start|>")


def test_the_system_prompt_is_the_first_turn_unless_there_is_one():
    tokenizer = CHATS["byte level"]
    brief, own = {"role": "system", "content": "Be brief."}, {"role": "system", "content": "Hello"}
    found = rendering(tokenizer, system_prompt="Be brief.")
    assert found.prompts([Problem("and 6?", "", turns=TURNS)]) == [templated(tokenizer, [brief, *SAID],
                                                                             add_generation_prompt=True)]
    told = (Turn("system", "Hello"), *TURNS)
    assert found.prompts([Problem("and 6?", "", turns=told)]) == [templated(tokenizer, [own, *SAID],
                                                                            add_generation_prompt=True)]


def test_a_template_without_a_system_role_has_its_text_in_the_users_turn():
    tokenizer = CHATS["no system"]
    found = rendering(tokenizer, system_prompt="Be brief.")
    assert not found.takes_system and rendering(CHATS["byte level"]).takes_system
    folded = templated(tokenizer, [{"role": "user", "content": "Be brief.\n\nWhat is 2 and 3?"}],
                       add_generation_prompt=True)
    assert found.prompts([Problem("What is 2 and 3?", "")]) == [folded]


@pytest.mark.parametrize("thinking, given", [("auto", {}), ("on", {"enable_thinking": True}),
                                             ("off", {"enable_thinking": False})])
def test_thinking_is_switched_where_the_template_can(thinking, given):
    tokenizer = CHATS["thinking"]
    found = rendering(tokenizer, thinking=thinking).prompts([Problem("What is 2 and 3?", "")])
    assert found == [templated(tokenizer, ASKED, add_generation_prompt=True, **given)]


def test_answers_begin_with_a_text_that_belongs_to_the_prompt():
    tokenizer = CHATS["byte level"]
    found = rendering(tokenizer, begins_with="<think>")
    assert found.text(Problem("Hello", "")).endswith("<|im_start|>assistant\n<think>")
    (prompt,), (answer,) = found.answers([Problem("Hello", "")], ["Yes"], [True])
    assert tokenizer.decode(prompt).endswith("<think>") and tokenizer.decode(answer) == "Yes<|im_end|>\n"


@pytest.mark.parametrize("how, expected", [("off", "Hello"), ("chatml", "<|im_start|>user\nHello<|im_end|>\n"
                                                              "<|im_start|>assistant\n")])
def test_the_template_can_be_chosen(how, expected):
    assert rendering(CHATS["no system"], template=how).text(Problem("Hello", "")) == expected


def test_chatml_ends_with_the_tokenizers_own_end_where_it_has_no_other():
    tokenizer = byte_level(None, end="</s>")
    assert rendering(tokenizer, template="chatml").ends == (2, 4), "the template's end is special, named or not"
    found = rendering(without_chatml(), template="chatml")
    _, (answer,) = found.answers([Problem("Hello", "")], ["Yes"], [True])
    assert found.tokenizer.decode(answer) == "Yes</s>\n" and found.ends == (found.tokenizer.eos_token_id,)


def test_answers_of_a_built_in_model_end_in_chatml_too():
    tokenizer = character_tokenizer()
    found = rendering(tokenizer, template="chatml")
    _, (answer,) = found.answers([Problem("1+1=", "")], ["2"], [True])
    assert tokenizer.eos_token_id in answer and len(answer) == 3
    plain = rendering(character_tokenizer(), template="off")
    assert len(plain.prompts([Problem("<eos>", "")])[0]) == 5, "text without a template is what it spells"


def without_chatml():
    """A tokenizer to which ChatML's tokens are text like any other."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    tokens = ["<pad>", "<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE({token: place for place, token in enumerate(tokens)}, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    backend.add_special_tokens(tokens[:3])
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="<pad>")


def test_every_end_of_the_model_ends_a_completion():
    tokenizer = byte_level()
    assert ends_of(tokenizer, Model()) == (4,)
    assert ends_of(tokenizer, Model(2)) == (4, 2) and ends_of(tokenizer, Model([2, 4, 6])) == (4, 2, 6)


TALK = Problem("and 6?", "11", turns=TURNS, whole=True)


def learnt(found: Rendering, *rows: Problem, context: int = 1000) -> tuple[list[str], int]:
    """Of each row the text that is learnt, with a bar between its parts; and in how many only the last answer is."""
    examples, texts = encode_examples(found, rows, context, CPU), []
    for ids, mask in zip(examples.answers.ids.tolist(), examples.answers.mask.tolist(), strict=True):
        edges = [place for place in range(len(ids)) if mask[place] and not (place and mask[place - 1])]
        parts = [[ids[at] for at in range(edge, len(ids)) if all(mask[edge:at + 1])] for edge in edges]
        texts.append("|".join(map(found.tokenizer.decode, parts)))
    return texts, examples.last_only


@pytest.mark.parametrize("tokenizer, said", [
    ("byte level", "5<|im_end|>\n|11<|im_end|>\n"), ("its own BOS", "5<|im_end|>\n|11<|im_end|>\n"),
    ("no system", "5<end_of_turn>\n|11<end_of_turn>\n"), ("thinking", "5<|im_end|>\n|11<|im_end|>\n"),
    ("sentencepiece", "5<|im_end|><unk>|11<|im_end|><unk>")])
def test_all_answers_of_a_conversation_are_learnt(tokenizer, said):
    found = rendering(CHATS[tokenizer], system_prompt="Be brief.")
    assert learnt(found, TALK) == ([said], 0)


def test_the_prompt_of_a_conversation_is_what_comes_before_its_first_answer():
    examples = encode_examples(rendering(CHATS["byte level"]), [TALK], 1000, CPU)
    assert examples.prompts.ids[0].tolist() == templated(CHATS["byte level"], ASKED, add_generation_prompt=True)
    assert examples.answers.extents.tolist() == [examples.answers.ids.shape[1]] and not examples.answers.truncated.any()


def test_beside_a_conversation_others_have_one_answer():
    found = rendering(CHATS["byte level"])
    rows = Problem("Hello", "Yes"), TALK, Problem("and 6?", "11", turns=TURNS)
    assert learnt(found, *rows) == (["Yes<|im_end|>\n", "5<|im_end|>\n|11<|im_end|>\n", "11<|im_end|>\n"], 0)


def test_a_template_that_drops_earlier_thoughts_has_the_last_answer_learnt():
    assert learnt(rendering(byte_level(STRIPS)), TALK, Problem("Hello", "Yes", whole=True)) == (
        ["<think>\n\n</think>\n\n11<|im_end|>\n", "<think>\n\n</think>\n\nYes<|im_end|>\n"], 1)
    assert learnt(rendering(byte_level(STRIPS), template="chatml"), TALK) == (["5<|im_end|>\n|11<|im_end|>\n"], 0)


def test_a_conversation_that_is_cut_learns_what_is_left():
    found = rendering(CHATS["byte level"])
    whole = encode_examples(found, [TALK], 1000, CPU)
    length = whole.prompts.ids.shape[1] + whole.answers.ids.shape[1]
    assert learnt(found, TALK, context=length - 1) == (["5<|im_end|>\n|11<|im_end|>"], 0)
    assert encode_examples(found, [TALK], length - 1, CPU).answers.truncated.tolist() == [True]
    assert learnt(found, TALK, context=length - 9) == (["5<|im_end|>\n"], 0)


@pytest.mark.parametrize("template", [None, CHATML_MARKED], ids=["plain template", "marks"])
def test_the_text_that_an_answer_begins_with_is_not_learnt(template):
    found = rendering(byte_level(template) if template else CHATS["byte level"], begins_with="1")
    assert learnt(found, Problem("and 6?", "1", turns=TURNS, whole=True))[0] == ["5<|im_end|>\n|1<|im_end|>\n"]


@pytest.mark.parametrize("row, words", [
    (Problem("and 6?", "", 3, TURNS), ["(line 3)", "template=chatml"])])
def test_a_conversation_without_a_template_says_what_to_do(row, words):
    with pytest.raises(LabError) as error:
        rendering(byte_level(None)).prompts([row])
    assert all(word in str(error.value) for word in words)


def test_a_template_that_refuses_names_the_line_and_its_own_reason():
    order = "{% if messages[0]['role'] != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}"
    with pytest.raises(LabError, match=r"\(line 7\).*roles must alternate"):
        rendering(byte_level(order)).prompts([Problem("x", "", 7, (Turn("assistant", "5"), Turn("user", "x")))])


PLAIN = character_tokenizer()
END = PLAIN.eos_token_id


@pytest.fixture(params=["pad", "pad is the end"])
def plain(request):
    made = character_tokenizer()
    if request.param == "pad is the end":
        made.pad_token = made.eos_token
        assert made.pad_token_id == made.eos_token_id == END
    return rendering(made)


def answers(plain, texts, limit, unended=()):
    return encode_answers(plain, [Problem("q", "")] * len(texts), texts, limit + 1, CPU, unended)[1]


def test_answers_end_and_are_padded_on_the_right(plain):
    got = answers(plain, ["ab", "abcd", ""], 9)
    assert got.lengths.tolist() == [3, 5, 1] and not got.truncated.any()
    assert [int(row[length - 1]) for row, length in zip(got.ids, got.lengths, strict=True)] == [END] * 3
    assert decode(PLAIN, got, END) == ["ab", "abcd", ""]


def test_answers_are_cut_at_the_limit(plain):
    got = answers(plain, ["abc", "abcd", "abcdef"], 4)
    assert got.truncated.tolist() == [False, True, True]
    assert got.lengths.tolist() == [4, 4, 4] and int(got.ids[0, 3]) == END
    assert decode(PLAIN, got, END) == ["abc", "abcd", "abcd"]


def test_what_was_cut_when_it_was_sampled_gets_no_end(plain):
    got = answers(plain, ["abc", "abc"], 9, [False, True])
    assert got.lengths.tolist() == [4, 3] and got.truncated.tolist() == [False, True]
    assert END not in got.ids[1][got.mask[1]].tolist()


@pytest.mark.parametrize("texts, lines, words", [
    (["abc", "abcdef"], [3, 9], ["(line 9)", "6 tokens", "room for 5"]), (["abc", ""], [3, 9], ["(line 9)", "empty"]),
    (["abcdef"], [None], ["A prompt has 6 tokens"])])
def test_prompts_that_cannot_be_used(plain, texts, lines, words):
    with pytest.raises(LabError) as error:
        encode_prompts(plain, [Problem(text, "", line) for text, line in zip(texts, lines, strict=True)], 5, CPU)
    assert all(word in str(error.value) for word in words) and str(error.value).count(". ") == 0


def test_a_prompt_that_just_fits(plain):
    assert len(encode_prompts(plain, [Problem("abcde", "")], 5, CPU)) == 1


def test_the_end_token_spelt_out_is_text(plain):
    got = answers(plain, ["<eos>"], 9)
    assert got.lengths.tolist() == [6] and decode(PLAIN, got, END) == ["<eos>"]


def test_a_conversation_with_the_template_off_says_to_turn_it_on():
    with pytest.raises(LabError, match=saying("conversation", "chat template is off", "template=auto")):
        rendering(CHATS["byte level"], template="off").prompts([Problem("and 6?", "", 3, TURNS)])
