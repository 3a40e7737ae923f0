#!/usr/bin/env python3
"""Turns miniature models with vision towers into GGUF files with llama.cpp's own converter: NAME/mmproj.gguf for the tower,
and with --decoder NAME/decoder.gguf for the decoder, with the tokens of its tokenizer.

usage: make_mmproj.py [--decoder] CONVERTER OUT FOLDER...

CONVERTER is a checkout of llama.cpp (conversion/ and gguf-py/ are used). Weights are in bf16, as the miniatures have them. Needs torch,
transformers and safetensors.
"""
import json
import shutil
import sys
import tempfile
from pathlib import Path

arguments = [word for word in sys.argv[1:] if word != "--decoder"]
if len(arguments) < 3 or arguments[0].startswith("-"):
    sys.exit(__doc__)
converter = Path(arguments[0]).resolve()
sys.path[:0] = [str(converter), str(converter / "gguf-py")]

import gguf  # noqa: E402
import torch  # noqa: E402
from conversion import ModelBase, get_model_class  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402


def as_published(folder):
    """The keys that published configs have and that recent versions of transformers no longer write."""
    hparams = ModelBase.load_hparams(folder, False)
    vision, text = hparams["vision_config"], hparams.get("text_config", {})
    if vision.get("model_type") == "internvl_vision":
        hparams.setdefault("downsample_ratio", 0.5)
    if "rope_parameters" in text:
        hparams.setdefault("rope_theta", text["rope_parameters"].get("rope_theta"))
    return hparams


# Where the weights of published models begin otherwise than those that transformers writes of miniatures.
PUBLISHED = {"gemma3": {"vision_tower.": "vision_tower.vision_model."},
             "internvl": {"vision_tower.": "model.vision_tower.", "multi_modal_projector.": "model.multi_modal_projector."}}


def published_names(folder, seen):
    shutil.copytree(folder, seen)
    weights = load_file(seen / "model.safetensors")

    def renamed(name):
        for old, new in PUBLISHED.get(folder.name, {}).items():
            if name.startswith(old):
                return new + name[len(old):]
        return name
    save_file({renamed(name): weight for name, weight in weights.items()}, seen / "model.safetensors")


def with_tokens(model_class, folder):
    """The words of the miniature's tokenizer; its rules are none that the converter knows."""
    def set_vocab(self):
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        size = {**self.hparams, **self.hparams.get("text_config", {})}["vocab_size"]
        words = {index: word for word, index in tokenizer["model"]["vocab"].items()}
        special = {entry["id"]: entry["content"] for entry in tokenizer["added_tokens"]}
        kinds = gguf.TokenType
        self.gguf_writer.add_tokenizer_model("gpt2")
        self.gguf_writer.add_tokenizer_pre("default")
        self.gguf_writer.add_token_list([special.get(i) or words.get(i) or f"<unused{i}>" for i in range(size)])
        self.gguf_writer.add_token_types([kinds.CONTROL if i in special else kinds.NORMAL if i in words else kinds.UNUSED
                                          for i in range(size)])
        # The miniatures have none; one that no text meets keeps the writer from leaving the list out.
        self.gguf_writer.add_token_merges(["<pad> <pad>"])
        self.gguf_writer.add_bos_token_id(1)
        self.gguf_writer.add_eos_token_id(2)
        self.gguf_writer.add_add_bos_token(False)
        self.gguf_writer.add_chat_template((folder / "chat_template.jinja").read_text())
    return type(model_class.__name__, (model_class,), dict(set_vocab=set_vocab, model_arch=model_class.model_arch))


def write(folder, out, mmproj):
    hparams = as_published(folder)
    name = hparams["architectures"][0]
    if mmproj and name == "InternVLForConditionalGeneration":
        name = "InternVisionModel"
    model_class = get_model_class(name, mmproj=mmproj)
    if not mmproj:
        model_class = with_tokens(model_class, folder)
    window = hparams["vision_config"].get("window_size", 112)
    model = model_class(folder, gguf.LlamaFileType.MOSTLY_BF16, out, eager=True, hparams=hparams)
    if mmproj:  # by numbers that miniatures have fewer layers for
        model.tensor_map = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 16)
    # What is the same in every published model, so that the converter leaves it out.
    if mmproj and window != 112:
        model.gguf_writer.add_uint32("clip.vision.window_size", window)
    if mmproj and folder.name.startswith("qwen"):
        size = model.preprocessor_config["size"]
        model.gguf_writer.add_uint32("clip.vision.image_min_pixels", size["shortest_edge"])
        model.gguf_writer.add_uint32("clip.vision.image_max_pixels", size["longest_edge"])
    model.write()


def main():
    failures = 0
    for folder in map(Path, arguments[2:]):
        out = Path(arguments[1]) / folder.name
        out.mkdir(parents=True, exist_ok=True)
        for file in ["mmproj"] + ["decoder"] * ("--decoder" in sys.argv):
            try:
                with torch.inference_mode(), tempfile.TemporaryDirectory() as temporary:
                    seen = Path(temporary) / folder.name
                    published_names(folder, seen)
                    write(seen, (out / f"{file}.gguf").resolve(), file == "mmproj")
                print(f"{folder.name}/{file}: converted")
            except Exception as error:  # one that the converter refuses does not stop the others
                failures += 1
                print(f"{folder.name}/{file}: {type(error).__name__}: {error}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
