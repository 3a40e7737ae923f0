// Embeddings of pictures: made by the model's vision tower, kept by content as long as there is room.
#pragma once

#include <list>
#include <map>
#include <optional>

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
  Result<kernels::Memory> encode(const request::PromptImage& image);
  void keep(const Sha256Digest& content, const kernels::Memory& embeddings);

  const models::Model& model_;
  std::optional<models::VisionTower> tower_;
  size_t limit_, used_ = 0;
  std::list<Kept> kept_;  // latest use first
  std::map<Sha256Digest, std::list<Kept>::iterator> places_;
  PictureCounts counts_;
};

}  // namespace sluice::runtime
