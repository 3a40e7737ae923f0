// Miniature models with vision towers against transformers: tokens of its processors, logits, and answers through the API.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "api/core/service.h"
#include "api/prompt/base64.h"
#include "cli/served_model.h"
#include "engine/engine.h"
#include "engine/event_queue.h"
#include "formats/safetensors/safetensors.h"
#include "image/image.h"
#include "kernels/cpu/cpu.h"
#include "llm/picture_reader.h"
#include "llm/session_options.h"
#include "runtime/device.h"
#include "runtime/memory/picture_embeddings.h"
#include "runtime/scorer.h"

namespace sluice {

namespace {

const std::string kVision = std::string(SLUICE_TEST_DATA) + "/vision/";

struct VisionFamilyCase {
  std::string name;
  uint64_t tiles;  // of its picture
};
const std::vector<VisionFamilyCase> kFamilies{{"gemma3", 1},     {"idefics3", 5}, {"internvl", 5},
                                              {"llava", 1},      {"mistral3", 1}, {"pixtral", 1},
                                              {"qwen2_5_vl", 1}, {"qwen3_vl", 1}};

struct VisionCase {
  std::string image;  // base64
  std::vector<Token> prompt, greedy;
};

VisionCase read_vision_case(const std::string& folder) {
  std::ifstream file(folder + "/golden.json");
  std::ostringstream text;
  text << file.rdbuf();
  const auto parsed = parse_json(text.str(), "golden.json");
  EXPECT_TRUE(parsed.ok());
  VisionCase out;
  out.image = std::string(parsed->at("image").as_string());
  for (const json::value& token : parsed->at("prompt").as_array())
    out.prompt.push_back(static_cast<Token>(token.as_int64()));
  for (const json::value& token : parsed->at("greedy").as_array())
    out.greedy.push_back(static_cast<Token>(token.as_int64()));
  return out;
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::vector<float> reference_logits(const std::string& folder, size_t count) {
  const auto store = formats::open_safetensors(folder + "/golden.safetensors");
  EXPECT_TRUE(store.ok());
  const auto logits = store->tensors.find("logits");
  EXPECT_TRUE(logits.ok() && static_cast<size_t>(logits->elements()) == count);
  std::vector<float> out(count);
  std::memcpy(out.data(), logits->data, count * sizeof(float));
  return out;
}

// ‖ours − reference‖ / ‖reference‖ of all positions of the prompt.
double logit_error(const std::string& folder, const runtime::DeviceOptions& device) {
  const VisionCase golden = read_vision_case(folder);
  const auto backend = runtime::make_backend(device);
  auto files = models::open_model(folder);
  if (!backend || !files || !files->vision) return 1;
  const auto model = models::load_model(std::move(*files), *backend);
  if (!model || !(*model)->vision) return 1;
  const auto picture = llm::make_picture_reader(**model)->read(*api::from_base64(golden.image));
  if (!picture) return 1;
  request::Request request;
  request.prompt = golden.prompt;
  const auto reader = llm::make_picture_reader(**model);
  if (!engine::add_picture_spans(request, reader->style(), {&*picture, 1}).ok()) return 1;
  runtime::PictureEmbeddings pictures(**model, 1 << 20);
  const request::Work all{
      .seq = SeqId{1}, .begin = 0, .end = static_cast<int>(golden.prompt.size()), .spans = request.spans};
  runtime::Batch batch(0);
  if (!pictures.place(request, all, batch).ok()) return 1;
  batch.add(golden.prompt, 0, {});
  runtime::Scorer scorer(**model, static_cast<int>(golden.prompt.size()));
  const kernels::RaggedBatch view = batch.view();
  scorer.set_input({batch.embedded(), view.seen, view.rope_positions});
  const auto ours = scorer.append(golden.prompt);
  if (!ours) return 1;
  const std::vector<float> reference = reference_logits(folder, ours->size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    difference += std::pow((*ours)[i] - reference[i], 2);
    size += std::pow(reference[i], 2);
  }
  return std::sqrt(difference / size);
}

std::shared_ptr<const models::Model> load_vision(const std::string& folder, const std::string& device) {
  const auto backend = runtime::make_backend({.device = device, .threads = 2});
  auto files = models::open_model(folder);
  if (!backend || !files || !files->vision) return nullptr;
  auto model = models::load_model(std::move(*files), *backend);
  if (!model || !(*model)->vision) return nullptr;
  return std::move(*model);
}

std::vector<float> host_values(const models::Model& model, const kernels::Memory& memory) {
  std::vector<float> out(static_cast<size_t>(memory.view.elements()));
  model.backend->download(
      TensorView::contiguous(out.data(), DType::F32, {memory.view.dim(0), memory.view.dim(1)}), memory.view);
  return out;
}

api::Reply ask(const std::vector<api::ServedModel>& models, const std::string& image, int max_tokens) {
  const json::value body{{"messages",
                          {{{"role", "user"},
                            {"content",
                             {{{"type", "image_url"}, {"image_url", {{"url", image}}}},
                              {{"type", "text"}, {"text", "What is it?"}}}}}}},
                         {"max_tokens", max_tokens},
                         {"temperature", 0},
                         {"ignore_eos", true}};
  const std::string text = json::serialize(body);
  for (const api::Operation& operation : api::operations()) {
    if (operation.path != "/v1/chat/completions") continue;
    return operation.run(
        {.operation = &operation, .rest = {}, .body = text, .models = models, .context = {}});
  }
  return api::ApiError{};
}

struct VisionAnswer {
  std::vector<Token> prompt, tokens;
  engine::Usage usage;
};

VisionAnswer run_job(llm::Session& session, api::Reply reply) {
  VisionAnswer out;
  auto* job = std::get_if<api::EngineJob>(&reply);
  if (job == nullptr) {
    ADD_FAILURE() << std::get<api::ApiError>(reply).message;
    return out;
  }
  engine::Submission submission = std::move(job->submissions.front());
  out.prompt = submission.request.prompt;
  std::promise<void> ended;
  submission.deliver = [&](engine::Event event) {
    if (const auto* delta = std::get_if<engine::Delta>(&event)) {
      for (const request::Sampled& sampled : delta->tokens) out.tokens.push_back(sampled.token);
    } else if (const auto* finished = std::get_if<engine::Finished>(&event)) {
      out.usage = finished->usage;
      ended.set_value();
    }
  };
  const auto id = session.engine().submit(std::move(submission));
  if (!id) {
    ADD_FAILURE() << id.error().message;
    return out;
  }
  ended.get_future().wait();
  return out;
}

std::unique_ptr<llm::Session> open_small(const std::string& folder, int step_tokens) {
  auto session = llm::Session::open(folder, {"device=cpu", "threads=2", "kv-tokens=1024", "max-seqs=4",
                                             "max-step-tokens=" + std::to_string(step_tokens)});
  if (!session) ADD_FAILURE() << session.error().message;
  return session ? std::move(*session) : nullptr;
}

}  // namespace

TEST(Vision, LogitsAgreeWithTransformers) {
  std::vector<runtime::DeviceOptions> devices{{.device = "ref"}};
  for (const auto& isa : kernels::available_isa_names())
    devices.push_back({.device = "cpu", .isa = std::string(isa), .threads = 2});
  for (const VisionFamilyCase& family : kFamilies)
    for (const runtime::DeviceOptions& device : devices)
      EXPECT_LE(logit_error(kVision + family.name, device), 1e-3)
          << family.name << " on " << device.device << " " << device.isa;
}

// Sizes differ where a family's tiles may: embeddings are the same bytes as those of each tile alone.
TEST(Vision, TilesOfOnePassAreThoseOfEachAloneAndInParts) {
  for (const VisionFamilyCase& family : kFamilies) {
    for (const char* device : {"ref", "cpu"}) {
      SCOPED_TRACE(family.name + " on " + device);
      const auto model = load_vision(kVision + family.name, device);
      ASSERT_NE(model, nullptr);
      models::VisionTower tower(*model->files.vision, *model->vision, *model->backend);
      std::vector<image::Image> images;
      for (const char* name : {"odd.jpg", "square.webp", "grey.png"}) {
        const auto decoded = image::decode_image(read_bytes(kVision + "pictures/" + name));
        ASSERT_TRUE(decoded.ok());
        auto parts = models::process_picture(*model->files.vision, *decoded);
        ASSERT_TRUE(parts.ok());
        std::move(parts->tiles.begin(), parts->tiles.end(), std::back_inserter(images));
      }
      std::vector<models::VisionTower::Tile> tiles;
      for (const image::Image& one : images) tiles.push_back({one.rgb.data(), one.width, one.height});
      const std::vector<kernels::Memory> together = tower.encode(tiles);
      ASSERT_EQ(together.size(), tiles.size());
      for (size_t i = 0; i < tiles.size(); ++i)
        EXPECT_EQ(host_values(*model, together[i]), host_values(*model, tower.encode({&tiles[i], 1}).front()))
            << "tile " << i;
      const auto pass = tower.begin(tiles);
      while (!tower.advance(*pass, 7)) {
      }
      const std::vector<kernels::Memory> in_parts = tower.finish(*pass);
      ASSERT_EQ(in_parts.size(), tiles.size());
      for (size_t i = 0; i < tiles.size(); ++i)
        EXPECT_EQ(host_values(*model, together[i]), host_values(*model, in_parts[i])) << "tile " << i;
    }
  }
}

TEST(Vision, PicturesOfOneStepCostOnePass) {
  const VisionCase golden = read_vision_case(kVision + "idefics3");
  const auto model = load_vision(kVision + "idefics3", "cpu");
  ASSERT_NE(model, nullptr);
  const auto reader = llm::make_picture_reader(*model);
  std::vector<request::Request> requests(2);
  std::vector<request::Work> works;
  const std::string files[] = {*api::from_base64(golden.image), read_bytes(kVision + "pictures/square.webp")};
  size_t tiles = 0;
  for (size_t i = 0; i < 2; ++i) {
    const auto picture = reader->read(files[i]);
    ASSERT_TRUE(picture.ok());
    for (const engine::Picture::Run& run : picture->runs) {
      requests[i].prompt.insert(requests[i].prompt.end(), static_cast<size_t>(run.tokens),
                                reader->style().token);
      requests[i].prompt.push_back(0);
    }
    ASSERT_TRUE(engine::add_picture_spans(requests[i], reader->style(), {&*picture, 1}).ok());
    tiles += requests[i].spans.size();
    works.push_back({.seq = SeqId{i + 1},
                     .begin = 0,
                     .end = static_cast<int>(requests[i].prompt.size()),
                     .spans = requests[i].spans});
  }
  runtime::PictureEmbeddings pictures(*model, 1 << 20);
  const runtime::PictureEmbeddings::Reader readers[] = {{&requests[0], &works[0]}, {&requests[1], &works[1]}};
  pictures.begin_step(readers, {});
  EXPECT_EQ(pictures.counts().passes, 1u);
  EXPECT_EQ(pictures.counts().encoded, tiles);
  runtime::Batch batch(0);
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(pictures.place(requests[i], works[i], batch).ok());
    batch.add(requests[i].prompt, 0, {});
  }
  EXPECT_EQ(pictures.counts().passes, 1u);
  EXPECT_EQ(pictures.counts().reused, 0u);

  // With little time for each step they are ready some steps later, though there is no room to keep them.
  runtime::PictureEmbeddings slow(*model, 0);
  int steps = 0;
  while (!slow.is_ready(readers[0]) || !slow.is_ready(readers[1])) {
    slow.begin_step(readers, {.seconds = 0});
    ASSERT_LT(++steps, 1000);
  }
  EXPECT_GT(steps, 5);
  EXPECT_EQ(slow.counts().encoded, tiles);
  // Of works that are ready as many run as the step has tokens for, and the first in any case.
  const int both = works[0].end + works[1].end;
  slow.begin_step(readers, {.seconds = 0, .tokens = both});
  EXPECT_TRUE(slow.is_ready(readers[0]) && slow.is_ready(readers[1]));
  slow.begin_step(readers, {.seconds = 0, .tokens = both - 1});
  EXPECT_TRUE(slow.is_ready(readers[0]) && !slow.is_ready(readers[1]));
  slow.begin_step({&readers[1], 1}, {.seconds = 0, .tokens = 1});
  EXPECT_TRUE(slow.is_ready(readers[1]));
  // There is no room to keep them: they stay until a prompt has read them to their end.
  request::Work part = works[0], rest = works[0];
  part.end = rest.begin = part.spans.back().end - 1;
  rest.spans = {part.spans.back()};
  runtime::Batch parts(0);
  for (const request::Work* work : {&part, &rest}) {
    slow.begin_step({}, {.seconds = 0});
    ASSERT_TRUE(slow.place(requests[0], *work, parts).ok());
    parts.add(requests[0].prompt, 0, {});
  }
  EXPECT_EQ(slow.counts().encoded, tiles);

  // Of requests that are gone nothing is run to its end.
  runtime::PictureEmbeddings forsaken(*model, 1 << 20);
  forsaken.begin_step(readers, {.seconds = 0});
  requests.clear();
  for (int i = 0; i < steps; ++i) forsaken.begin_step({}, {.seconds = 0});
  EXPECT_EQ(forsaken.counts().encoded, 0u);
}

// Prompts of several sizes of steps: a chunk may end inside of a picture. Asked again, a picture costs neither its tower nor
// its prefix.
TEST(Vision, AnswersThroughTheApiAreThoseOfTransformers) {
  for (const auto& [family, tiles] : kFamilies) {
    for (const int step_tokens : {512, 19}) {
      SCOPED_TRACE(family + " in steps of " + std::to_string(step_tokens));
      const VisionCase golden = read_vision_case(kVision + family);
      const std::unique_ptr<llm::Session> session = open_small(kVision + family, step_tokens);
      ASSERT_NE(session, nullptr);
      auto served = cli::served_model(*session);
      ASSERT_TRUE(served.ok());
      const std::string url = "data:image/png;base64," + golden.image;
      const VisionAnswer first = run_job(*session, ask({*served}, url, 8));
      EXPECT_EQ(first.prompt, golden.prompt);
      EXPECT_EQ(first.tokens, golden.greedy);
      EXPECT_EQ(first.usage.cached_tokens, 0);
      const uint64_t encoded = session->engine().metrics().pictures_encoded.value();
      EXPECT_EQ(encoded, tiles);
      const VisionAnswer again = run_job(*session, ask({*served}, url, 8));
      EXPECT_EQ(again.tokens, golden.greedy);
      EXPECT_GT(again.usage.cached_tokens, static_cast<int>(golden.prompt.size()) / 2);
      EXPECT_EQ(session->engine().metrics().pictures_encoded.value(), encoded);
    }
  }
}

// The decoder's GGUF file, and beside it the tower's.
TEST(Vision, AGgufModelReadsPicturesWithTheTowerBesideIt) {
  const VisionCase golden = read_vision_case(kVision + "qwen3_vl");
  const std::unique_ptr<llm::Session> session = open_small(kVision + "qwen3_vl/decoder.gguf", 512);
  ASSERT_NE(session, nullptr);
  auto served = cli::served_model(*session);
  ASSERT_TRUE(served.ok());
  ASSERT_NE(served->pictures, nullptr);
  const VisionAnswer answer = run_job(*session, ask({*served}, "data:image/png;base64," + golden.image, 8));
  EXPECT_EQ(answer.prompt, golden.prompt);
  EXPECT_EQ(answer.tokens, golden.greedy);
  for (const char* tower : {"/qwen3_vl/decoder.gguf", "/none.gguf"}) {
    const auto other = llm::Session::open(kVision + "qwen3_vl/decoder.gguf",
                                          {"device=cpu", "threads=2", "mmproj=" + kVision + tower});
    EXPECT_FALSE(other.ok()) << tower;
  }
  const auto folder = llm::Session::open(kVision + "qwen3_vl", {"device=cpu", "mmproj=x.gguf"});
  ASSERT_FALSE(folder.ok());
  EXPECT_NE(folder.error().message.find("--mmproj"), std::string::npos);
}

// Pictures of odd sizes, grey, with alpha, of 16 bits, turned by EXIF, as the processors over Pillow cut them.
TEST(Vision, PicturesAreCutAsProcessorsDo) {
  for (const VisionFamilyCase& family : kFamilies) {
    const auto files = models::open_model(kVision + family.name);
    ASSERT_TRUE(files.ok() && files->vision);
    const auto golden = formats::open_safetensors(kVision + family.name + "/golden.safetensors");
    ASSERT_TRUE(golden.ok());
    for (const char* name : {"alpha.png", "deep.png", "grey.png", "odd.jpg", "square.webp", "turned.jpg"}) {
      SCOPED_TRACE(family.name + " " + name);
      const auto decoded = image::decode_image(read_bytes(kVision + "pictures/" + name));
      ASSERT_TRUE(decoded.ok());
      const auto parts = models::process_picture(*files->vision, *decoded);
      ASSERT_TRUE(parts.ok());
      const auto wanted = golden->tensors.find(name);
      ASSERT_TRUE(wanted.ok() && wanted->rank == 4);
      ASSERT_EQ(static_cast<int64_t>(parts->tiles.size()), wanted->dim(0));
      int largest = 0;
      const auto* at = static_cast<const uint8_t*>(wanted->data);
      for (const image::Image& tile : parts->tiles) {
        ASSERT_EQ(tile.height, wanted->dim(2));
        ASSERT_EQ(tile.width, wanted->dim(3));
        const auto pixels = static_cast<size_t>(tile.width) * static_cast<size_t>(tile.height);
        for (size_t i = 0; i < 3 * pixels; ++i)
          largest = std::max(largest, std::abs(int{tile.rgb[i % pixels * 3 + i / pixels]} - int{*at++}));
      }
      EXPECT_LE(largest, 1);
    }
  }
}

TEST(Vision, WhatCannotBeReadIsRefused) {
  const VisionCase golden = read_vision_case(kVision + "idefics3");
  const std::unique_ptr<llm::Session> session = open_small(kVision + "idefics3", 512);
  ASSERT_NE(session, nullptr);
  auto served = cli::served_model(*session);
  ASSERT_TRUE(served.ok());
  const auto refusal = [&](const std::string& url) {
    const api::Reply reply = ask({*served}, url, 1);
    const auto* error = std::get_if<api::ApiError>(&reply);
    return error == nullptr ? std::string("taken") : std::to_string(error->status) + " " + error->message;
  };
  EXPECT_NE(refusal("https://example.org/cat.png").find("400 "), std::string::npos);
  EXPECT_NE(refusal("data:image/png;base64,****").find("base64"), std::string::npos);
  EXPECT_NE(refusal("data:image/png;base64,aGVsbG8gd29ybGQh").find("neither JPEG"), std::string::npos);
  served->pictures = nullptr;
  served->id = "blind";
  EXPECT_NE(refusal("data:image/png;base64," + golden.image).find("'blind' reads text alone"),
            std::string::npos);
}

}  // namespace sluice
