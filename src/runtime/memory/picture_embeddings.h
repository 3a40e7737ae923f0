// Embeddings of pictures: made by the model's vision tower, kept by content as long as there is room.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/sha256.h"
#include "models/model.h"
#include "request/step.h"
#include "runtime/batch.h"
#include "runtime/memory/tower_run.h"
#include "sched/executor.h"

namespace sluice::runtime {

using sched::PictureCounts;

class PictureEmbeddings {
 public:
  // Keeps at most `bytes` of embeddings beside those that a batch holds. The model outlives it.
  PictureEmbeddings(const models::Model& model, size_t bytes);

  struct Reader {
    const request::Request* request = nullptr;
    const request::Work* work = nullptr;
    // Whether the work is of a prompt with pictures, be it text that it reads.
    bool has_pictures() const {
      return request != nullptr && !request->spans.empty() &&
             work->begin < static_cast<int>(request->prompt.size());
    }
  };
  // Begins a step with these works of prompts with pictures: says which of them may run in it, and runs the tower over the
  // tiles that the others need and that are not kept, those of several requests in one pass. Where the share is limited, as
  // many works may run as it has tokens for, the first in any case; the tower has the seconds that they leave, and what is
  // not finished then goes on with the next call. What fails here is left to place(), where its request fails alone.
  void begin_step(std::span<const Reader> readers, const request::PictureShare& share);
  // Whether the work may run: place() has nothing left to run for it.
  bool is_ready(const Reader& reader) const;
  // That the tower took of the step.
  double tower_seconds() const { return tower_seconds_; }
  // Embeddings, sights and rotary positions of the work's rows, which are the next that the batch gets. An error leaves the
  // batch as it was.
  Status place(const request::Request& request, const request::Work& work, Batch& batch);
  const PictureCounts& counts() const { return counts_; }

 private:
  struct Kept {
    Sha256Digest content;
    kernels::Memory embeddings;
  };
  // [rows, (1 + deep) dim] of the positions of `work` that lie in the span, which is one of the request's.
  Result<kernels::Memory> rows_of(const request::Request& request, const request::EmbeddingSpan& span,
                                  const request::Work& work);
  Result<const request::EmbeddingSource*> source_of(const request::Request& request,
                                                    const request::EmbeddingSpan& span) const;
  Result<kernels::Memory> encode(const request::PromptImage& image, bool is_last_use);
  double seconds_left(std::span<const Reader> readers, const request::PictureShare& share);
  void run_tower(std::span<const Reader> readers, double seconds);
  bool begin_pass(std::span<const Reader> readers, int64_t most_patches);
  void keep_made();
  bool has_embeddings(const Reader& reader) const;
  bool is_known(const Sha256Digest& content) const;
  void forget_used();
  void keep(const Sha256Digest& content, const kernels::Memory& embeddings);

  // Of a pass, and of one that is run in parts, whose pictures are there the sooner the fewer they are.
  static constexpr int64_t kPassPatches = 4096, kPartedPassPatches = 1024;

  // What a pass has made stays until a prompt has read it to its end, though there is no room to keep it.
  struct Fresh {
    std::weak_ptr<const request::PromptImage> image;
    kernels::Memory embeddings;
    uint64_t uses = 0;
    bool is_read = false;
  };

  const models::Model& model_;
  std::optional<models::VisionTower> tower_;
  size_t limit_, used_ = 0;
  std::list<Kept> kept_;  // latest use first
  std::map<Sha256Digest, std::list<Kept>::iterator> places_;
  std::map<Sha256Digest, Fresh> fresh_;
  std::optional<TowerRun> run_;
  std::optional<std::set<const request::Work*>> admitted_;  // of a step whose share is limited
  double tower_seconds_ = 0;
  std::set<Sha256Digest> left_;  // to place(), in this step
  PictureCounts counts_;
};

}  // namespace sluice::runtime
