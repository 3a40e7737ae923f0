#!/usr/bin/env python3
"""Makes miniature models with vision towers, their processors and reference outputs, in tests/golden/data/vision.

usage: make_vision_golden.py [FAMILY ...]

A folder has what a published model has (config, weights in bf16, tokenizer, processor, chat template), and golden.json: a
conversation, its picture, the tokens that transformers' processor makes of both, and the greedy answer; golden.safetensors
has the logits of every position in float32, and for each file of the folder `pictures` the tiles [n, 3, height, width] that
the processor makes of it, before they are normalised. Processors are those over Pillow. Needs torch, transformers,
tokenizers, Pillow.
"""
import base64
import io
import json
import shutil
import struct
import sys
import zlib
from pathlib import Path

if any(name.startswith("-") for name in sys.argv[1:]):
    sys.exit(__doc__)

import numpy  # noqa: E402
import torch  # noqa: E402
from PIL import Image, ImageOps  # noqa: E402
from safetensors.torch import save_file  # noqa: E402
from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: E402
import transformers as hf  # noqa: E402

DATA = Path(__file__).resolve().parent.parent / "tests/golden/data/vision"
TEXT = dict(model_type="llama", vocab_size=320, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, tie_word_embeddings=True)
TOWER = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=2, image_size=28, patch_size=7)
QWEN_TOWER = dict(depth=3, hidden_size=32, intermediate_size=48, num_heads=2, patch_size=7, spatial_merge_size=2,
                  temporal_patch_size=2, out_hidden_size=32)
QWEN_SIZE = {"shortest_edge": 784, "longest_edge": 3600}
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message['role'] }}\n{% if message['content'] is string %}"
            "{{ message['content'] }}{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}PICTURE"
            "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<end_of_utterance>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
NAMED = dict(boi_token="<start_of_image>", eoi_token="<end_of_image>", image_token="<image_soft_token>",
             start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>",
             video_token="<|video_pad|>")


def tokenizer(placeholder, named=None):
    special = ["<pad>", "<s>", "</s>", "<|im_start|>", "<image>", "<fake_token_around_image>", "<global-img>",
               "<end_of_utterance>", "[IMG]", "[IMG_BREAK]", "[IMG_END]", "<|vision_start|>", "<|image_pad|>",
               "<|vision_end|>"] + list(NAMED.values()) + [f"<row_{i}_col_{j}>" for i in range(1, 5) for j in range(1, 5)]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {text: index for index, text in enumerate(special + letters)}
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(special)
    return hf.PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>",
                                      pad_token="<pad>", extra_special_tokens=named or {},
                                      chat_template=TEMPLATE.replace("PICTURE", placeholder))


def idefics3():
    text = tokenizer("<image>")
    config = hf.Idefics3Config(vision_config=TOWER, text_config=TEXT, scale_factor=2, tie_word_embeddings=True,
                               image_token_id=text.convert_tokens_to_ids("<image>"))
    pictures = hf.Idefics3ImageProcessorPil(size={"longest_edge": 56}, max_image_size={"longest_edge": 28})
    return config, hf.Idefics3Processor(pictures, text, image_seq_len=4, chat_template=text.chat_template)


def llava():
    text = tokenizer("<image>")
    config = hf.LlavaConfig(vision_config=TOWER | dict(model_type="clip_vision_model", projection_dim=32), text_config=TEXT,
                            image_token_id=text.convert_tokens_to_ids("<image>"), tie_word_embeddings=True)
    pictures = hf.CLIPImageProcessorPil(size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28})
    return config, hf.LlavaProcessor(pictures, text, patch_size=7, vision_feature_select_strategy="default",
                                     num_additional_image_tokens=1, chat_template=text.chat_template)


def pixtral(merge=1):
    text = tokenizer("[IMG]")
    tower = TOWER | dict(model_type="pixtral", image_size=56)
    del tower["num_hidden_layers"]
    common = dict(vision_config=tower | dict(num_hidden_layers=2), text_config=TEXT | dict(model_type="mistral", head_dim=8),
                  image_token_id=text.convert_tokens_to_ids("[IMG]"), vision_feature_layer=-1, tie_word_embeddings=True)
    if merge == 1:
        config = hf.LlavaConfig(vision_feature_select_strategy="full", image_seq_length=1, **common)
    else:
        config = hf.Mistral3Config(spatial_merge_size=merge, **common)
    pictures = hf.PixtralImageProcessorPil(size={"longest_edge": 42}, patch_size=7)
    return config, hf.PixtralProcessor(pictures, text, patch_size=7, spatial_merge_size=merge,
                                       chat_template=text.chat_template)


def mistral3():
    return pixtral(2)


def gemma3():
    text = tokenizer("<start_of_image>", {name: NAMED[name] for name in ("boi_token", "eoi_token", "image_token")})
    decoder = TEXT | dict(model_type="gemma3_text", head_dim=8, query_pre_attn_scalar=8, sliding_window=6,
                          layer_types=["sliding_attention", "full_attention"])
    config = hf.Gemma3Config(vision_config=TOWER | dict(model_type="siglip_vision_model", vision_use_head=False),
                             text_config=decoder, mm_tokens_per_image=4, tie_word_embeddings=True,
                             boi_token_index=text.boi_token_id, eoi_token_index=text.eoi_token_id,
                             image_token_id=text.image_token_id)
    pictures = hf.Gemma3ImageProcessorPil(size={"height": 28, "width": 28})
    return config, hf.Gemma3Processor(pictures, text, image_seq_length=4, chat_template=text.chat_template)


def internvl():
    text = tokenizer("<IMG_CONTEXT>", {name: NAMED[name] for name in ("start_image_token", "end_image_token",
                                                                       "context_image_token", "video_token")})
    config = hf.InternVLConfig(vision_config=TOWER | dict(attention_bias=True, layer_scale_init_value=0.5),
                               text_config=TEXT | dict(model_type="qwen2"), tie_word_embeddings=True,
                               image_token_id=text.context_image_token_id)
    pictures = hf.GotOcr2ImageProcessorPil(size={"height": 28, "width": 28}, max_patches=4)
    return config, hf.InternVLProcessor(pictures, text, hf.InternVLVideoProcessor(), image_seq_length=4,
                                        chat_template=text.chat_template)


def qwen(make_config, make_processor, tower, **decoder):
    text = tokenizer("<|vision_start|><|image_pad|><|vision_end|>",
                     dict(image_token="<|image_pad|>", video_token="<|video_pad|>"))
    ids = {f"{name}_token_id": text.convert_tokens_to_ids(f"<|{token}|>") for name, token in (
        ("image", "image_pad"), ("video", "video_pad"), ("vision_start", "vision_start"), ("vision_end", "vision_end"))}
    config = make_config(vision_config=QWEN_TOWER | tower, text_config=TEXT | dict(num_hidden_layers=4) | decoder,
                         tie_word_embeddings=True, **ids)
    pictures = hf.Qwen2VLImageProcessorPil(size=QWEN_SIZE, patch_size=7, temporal_patch_size=2, merge_size=2)
    video = hf.Qwen3VLVideoProcessor if make_processor is hf.Qwen3VLProcessor else hf.Qwen2VLVideoProcessor
    return config, make_processor(pictures, text, video(), chat_template=text.chat_template)


def qwen2_5_vl():
    return qwen(hf.Qwen2_5_VLConfig, hf.Qwen2_5_VLProcessor, dict(window_size=28, fullatt_block_indexes=[1]),
                model_type="qwen2_5_vl_text",
                rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 1, 1]))


def qwen3_vl():
    return qwen(hf.Qwen3VLConfig, hf.Qwen3VLProcessor, dict(num_position_embeddings=25, deepstack_visual_indexes=[0, 2]),
                model_type="qwen3_vl_text", head_dim=16,
                rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 2, 2],
                                     mrope_interleaved=True))


FAMILIES = dict(idefics3=idefics3, llava=llava, pixtral=pixtral, mistral3=mistral3, gemma3=gemma3, internvl=internvl,
                qwen2_5_vl=qwen2_5_vl, qwen3_vl=qwen3_vl)


def photograph(width, height):
    y, x = numpy.mgrid[0:height, 0:width].astype(float)
    planes = [255 * x / width, 128 + 100 * numpy.sin(x / 5) * numpy.cos(y / 4), 255 * (y > 0.3 * height + 0.2 * x)]
    return Image.fromarray(numpy.clip(numpy.stack(planes, -1), 0, 255).astype(numpy.uint8))


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() < 2:
                value = (1.0 if "norm" in name and "weight" in name else 0.0) + 0.1 * noise
            else:
                value = noise * (0.9 / parameter[0].numel() ** 0.5)
            parameter.copy_(value.to(torch.bfloat16).float())


def deep_png(pixels):  # 16 bits a channel, which Pillow does not write
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_pictures():
    folder = DATA / "pictures"
    folder.mkdir(parents=True, exist_ok=True)
    photograph(97, 61).save(folder / "odd.jpg", quality=90)
    photograph(45, 31).convert("L").save(folder / "grey.png")
    clear = photograph(40, 23).convert("RGBA")
    clear.putalpha(photograph(40, 23).convert("L"))
    clear.save(folder / "alpha.png")
    turned = Image.Exif()
    turned[0x0112] = 6
    photograph(50, 34).save(folder / "turned.jpg", quality=90, exif=turned)
    noise = numpy.random.default_rng(3).integers(0, 65536, (19, 66, 3))
    (folder / "deep.png").write_bytes(deep_png(noise))
    photograph(29, 29).save(folder / "square.webp", lossless=True)
    return sorted(folder.iterdir())


def tiles_of(processor, path):
    pictures = processor.image_processor
    picture = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    options = dict(crop_to_patches=True) if isinstance(processor, hf.InternVLProcessor) else {}
    if isinstance(processor, hf.PixtralProcessor):
        options = dict(patch_size=processor.patch_size * processor.spatial_merge_size)
    made = pictures([picture], return_tensors="np", **options)
    values = made["pixel_values"]
    if "image_grid_thw" in made:
        _, rows, columns = made["image_grid_thw"][0]
        values = values.reshape(rows // 2, columns // 2, 2, 2, 3, 2, 7, 7)[:, :, :, :, :, 0]
        values = values.transpose(4, 0, 2, 5, 1, 3, 6).reshape(1, 3, rows * 7, columns * 7)
    values = values.reshape(-1, *values.shape[-3:])
    mean, deviation = (numpy.array(x)[:, None, None] for x in (pictures.image_mean, pictures.image_std))
    return torch.from_numpy(numpy.rint((values * deviation + mean) * 255).astype(numpy.uint8))


def make(name):
    out = DATA / name
    config, processor = FAMILIES[name]()
    model = hf.AutoModelForImageTextToText.from_config(config, attn_implementation="eager").float().eval()
    randomize(model, 7)
    picture = photograph(53, 37)
    messages = [dict(role="user", content=[dict(type="image"), dict(type="text", text="What is it?")])]
    prompt = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    nested = name in ("idefics3", "gemma3")
    inputs = processor(text=[prompt], images=[[picture]] if nested else [picture], return_tensors="pt",
                       add_special_tokens=False)
    with torch.no_grad():
        logits = model(**inputs).logits[0].float()
        answer = model.generate(**inputs, max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0)
    tokens = inputs["input_ids"][0].tolist()
    greedy = answer[0].tolist()[len(tokens):]
    best = logits[-1].topk(2).values
    print(f"{name}: {len(tokens)} tokens, pixels {tuple(inputs['pixel_values'].shape)}, gap {best[0] - best[1]:.3f}")
    tiles = {path.name: tiles_of(processor, path) for path in write_pictures()}
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    model.to(torch.bfloat16).save_pretrained(out)
    processor.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    file = io.BytesIO()
    picture.save(file, "PNG")
    case = dict(messages=messages, image=base64.b64encode(file.getvalue()).decode(), prompt=tokens, greedy=greedy)
    (out / "golden.json").write_text(json.dumps(case) + "\n")
    save_file({"logits": logits.contiguous()} | {n: t.contiguous() for n, t in tiles.items()}, out / "golden.safetensors")


for family in sys.argv[1:] or FAMILIES:
    make(family)
