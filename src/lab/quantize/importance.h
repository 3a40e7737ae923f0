// What the columns of a model's matrices are multiplied with on a text: what an error of each column costs.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernels/observe.h"
#include "lab/perplexity.h"

namespace sluice::lab {

// The mean square of each column's activations, over all tokens that reached the matrix.
class Importance : public kernels::GemmObserver {
 public:
  void saw(const kernels::Weight& weight, TensorView x) override;

  // Of a tensor's slice, positive: columns that were hardly used count a little. Empty: no token reached it.
  std::vector<float> of(const std::string& tensor, int slice) const;
  size_t tensors() const { return sums_.size(); }

 private:
  struct Sums {
    std::vector<double> squares;  // [cols]
    int64_t tokens = 0;
  };
  std::map<std::string, std::map<int, Sums>> sums_;
};

// Runs the contexts of measure_perplexity. `done` sees how many have run and of how many. Fails as measure_perplexity does, and
// where GEMMs of the model's back-end cannot be watched.
Result<Importance> measure_importance(const models::Model& model, std::span<const Token> text,
                                      const PerplexityOptions& options,
                                      const std::function<void(int, int)>& done);

}  // namespace sluice::lab
