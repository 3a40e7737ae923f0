// What stays in host memory of a model whose matrices a back-end has taken to a place of its own, as devices do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/golden.h"
#include "kernels/column_order.h"
#include "kernels/ref/ref_backend.h"
#include "models/model.h"

namespace sluice {

namespace {

namespace fs = std::filesystem;
using kernels::Weight;

// Matrices go to memory of the back-end's own, where it computes as the reference does; vectors too, so that the model's owners are
// the copies that were made for matrices.
class Taking : public kernels::RefBackend {
 public:
  explicit Taking(bool tables) : tables_(tables) {}

  bool joins_shared_experts() const override { return true; }
  Weight prepare(Weight weight) override {
    if (weight.table && !tables_) return weight;
    return kernels::prepare_runs(std::move(weight), [this](Weight run) { return taken(std::move(run)); });
  }
  kernels::Memory upload(TensorView host) override {
    kernels::Memory memory = RefBackend::upload(host);
    uploaded_.push_back(std::exchange(memory.owner, nullptr));
    return memory;
  }

 private:
  Weight taken(Weight run) {
    auto memory = std::make_shared<std::vector<HostTensor>>();
    for (TensorView& part : run.parts) {
      memory->push_back(HostTensor::make(part.dtype, {part.dim(0), part.dim(1)}));
      std::memcpy(memory->back().view.data, part.data, static_cast<size_t>(part.bytes()));
      part = memory->back().view;
    }
    run.packed = std::move(memory);
    return run;
  }

  bool tables_;
  std::vector<std::shared_ptr<void>> uploaded_;
};

std::unique_ptr<models::Model> loaded(const std::string& path, std::shared_ptr<kernels::Backend> backend) {
  auto files = models::open_model(path);
  if (!files) {
    ADD_FAILURE() << files.error().message;
    return nullptr;
  }
  auto model = models::load_model(std::move(*files), std::move(backend));
  if (!model) ADD_FAILURE() << model.error().message;
  return model ? std::move(*model) : nullptr;
}

int64_t kept(const models::Model& model) {
  return std::ranges::count_if(model.weights.owners, [](const auto& owner) { return owner != nullptr; });
}

void expect_references(const models::Model& model, const std::string& folder) {
  const auto cases = cli::read_golden(folder, model.spec().vocab);
  ASSERT_TRUE(cases.ok()) << cases.error().message;
  for (const cli::GoldenCase& golden : *cases) {
    const auto verdict = cli::judge(model, golden, DType::F32, 0);
    ASSERT_TRUE(verdict.ok()) << verdict.error().message;
    EXPECT_LE(verdict->relative_error, 1e-3) << golden.prompt.size() << " tokens";
  }
}

// Folders whose matrices are repacked, transposed, cut apart, shared or joined on their way.
std::vector<std::string> folders() {
  const fs::path data = SLUICE_TEST_DATA;
  std::vector<std::string> all;
  for (const char* family : {"bloom", "deepseek", "deepseek_moe", "gemma3n", "gpt2", "gpt_neox", "gpt_oss",
                             "latent", "llama4", "mixtral", "openai_gpt", "opt", "qwen3_next", "zamba2"})
    all.push_back((data / family).string());
  for (const auto& entry : fs::directory_iterator(data / "quantized")) all.push_back(entry.path().string());
  std::ranges::sort(all);
  return all;
}

std::string model_of(const std::string& folder) {
  const std::string gguf = folder + "/model.gguf";
  return fs::exists(gguf) ? gguf : folder;
}

}  // namespace

TEST(HostCopies, GoWhereTheBackendHasEveryMatrix) {
  for (const std::string& folder : folders()) {
    SCOPED_TRACE(folder);
    const auto model = loaded(model_of(folder), std::make_shared<Taking>(true));
    if (!model) continue;
    EXPECT_EQ(kept(*model), 0);
    expect_references(*model, folder);
  }
}

// As a back-end has it that looks rows up where the file has them: at most the tables are copies of ours then.
TEST(HostCopies, StayWhereTheBackendReadsThem) {
  for (const std::string& folder : folders()) {
    SCOPED_TRACE(folder);
    const auto model = loaded(model_of(folder), std::make_shared<Taking>(false));
    if (!model) continue;
    EXPECT_LE(kept(*model), 2);
    expect_references(*model, folder);
  }
}

}  // namespace sluice
