// A folder with a tiny model of the golden ones, and a tokenizer and chat template for it.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace sluice::llm {

class TinyModel {
 public:
  explicit TinyModel(bool with_tokenizer = true) {
    static std::atomic<int> count{0};
    folder_ = std::filesystem::temp_directory_path() / fmt::format("sluice_tiny_{}_{}", getpid(), ++count);
    std::filesystem::create_directories(folder_);
    const std::filesystem::path tests = std::filesystem::path(SLUICE_TEST_DATA).parent_path().parent_path();
    const std::filesystem::path source = tests / "golden/data/grouped-query";
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(source / file, folder_ / file);
    if (with_tokenizer) write_tokenizer();
  }
  ~TinyModel() { std::filesystem::remove_all(folder_); }
  TinyModel(const TinyModel&) = delete;
  TinyModel& operator=(const TinyModel&) = delete;

  std::string path() const { return folder_.string(); }

 private:
  // Letters, some digits, the space and the full stop, a token each: the 64 of the model's vocabulary.
  void write_tokenizer() const {
    std::string vocab = R"("<s>":0,"<|end|>":1," ":2,".":3)";
    int id = 4;
    for (const char c : std::string_view("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ01234567"))
      vocab += fmt::format(",\"{}\":{}", c, id++);
    std::ofstream(folder_ / "tokenizer.json")
        << R"({"model":{"type":"BPE","vocab":{)" << vocab
        << R"(},"merges":[]},"decoder":{"type":"Fuse"},"added_tokens":[)"
        << R"({"id":0,"content":"<s>","special":true},{"id":1,"content":"<|end|>","special":true}]})";
    std::ofstream(folder_ / "tokenizer_config.json")
        << R"({"bos_token":"<s>","eos_token":"<|end|>","chat_template":)"
        << R"("{{ bos_token }}{% for m in messages %}{{ m.role }} {{ m.content }}.{% endfor %}"})";
  }

  std::filesystem::path folder_;
};

}  // namespace sluice::llm
