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
  };
  // Begins a step: runs the tower over the tiles that these works need and that are not kept, those of several requests in
  // one pass. It takes about so many seconds; what is not finished then goes on with the next call. What fails here is left
  // to place(), where its request fails alone.
  void encode_together(std::span<const Reader> readers, double seconds);
  // Whether place() has nothing left to run for the work.
  bool is_ready(const Reader& reader) const;
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
  Result<kernels::Memory> encode(const request::PromptImage& image);
  bool begin_pass(std::span<const Reader> readers, int64_t most_patches);
  void finish_pass();
  bool is_known(const Sha256Digest& content) const;
  void forget_used();
  void keep(const Sha256Digest& content, const kernels::Memory& embeddings);

  // Of a pass, and of one that is run in parts: its first part embeds them all.
  static constexpr int64_t kPassPatches = 4096, kPartedPassPatches = 1024;
  // Tokens of a part: where somebody waits for the step, and where there is time for as many as GEMMs are best with.
  static constexpr int64_t kPartTokens = 32, kLargePartTokens = 256;
  static constexpr double kMuchTime = 0.1;  // seconds

  // What a pass has made stays until it is used, though there is no room to keep it.
  struct Fresh {
    std::weak_ptr<const request::PromptImage> image;
    kernels::Memory embeddings;
    bool used = false;
  };
  struct Running {
    std::vector<std::shared_ptr<const request::PromptImage>> images;
    std::shared_ptr<models::VisionTower::Pass> pass;
  };

  const models::Model& model_;
  std::optional<models::VisionTower> tower_;
  size_t limit_, used_ = 0;
  std::list<Kept> kept_;  // latest use first
  std::map<Sha256Digest, std::list<Kept>::iterator> places_;
  std::map<Sha256Digest, Fresh> fresh_;
  std::optional<Running> running_;
  std::set<Sha256Digest> left_;  // to place(), in this step
  PictureCounts counts_;
};

}  // namespace sluice::runtime
