// Finds the tensors of a slot in a file and brings them into the form the decoder uses.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "formats/tensor_store.h"
#include "kernels/backend.h"
#include "models/loading/fold.h"
#include "models/loading/locate.h"
#include "models/loading/names.h"
#include "models/loading/weights.h"

namespace sluice::models {

struct Extent {
  int64_t rows = 0;
  int64_t cols = 0;
};

// What a rank keeps of a stacked matrix.
struct Cut {
  std::vector<dist::Range> rows;  // ascending; empty: all
  std::vector<dist::Range> cols;  // likewise
  bool bias = true;               // of matrices whose results are summed over ranks one rank adds it
};

// The rows of a slot in a matrix that several slots make.
struct SlotRows {
  WeightSlot slot;
  int64_t count = 0;
  std::vector<dist::Range> kept;  // ascending; empty: all
};

// Each element of the cut's rows.
std::vector<float> kept_rows(const std::vector<float>& values, const Cut& cut);

// Keeps the first problem and goes on with empty weights; status() must be asked at the end.
class Binder {
 public:
  Binder(const ModelSpec& spec, const formats::TensorStore& store, kernels::Backend& backend,
         ModelWeights& out)
      : names_(spec.names), quantization_(spec.quantization), store_(store), backend_(backend), out_(out) {}

  // `prefix`: what names of the layer begin with up to its number, where that is not what the stems say.
  void set_layer(int layer, std::string_view prefix = {}) {
    layer_ = layer;
    prefix_ = prefix;
  }
  int layer() const { return layer_; }
  // What is bound so far.
  const ModelWeights& bound() const { return out_; }
  void set_qkv_shape(QkvShape shape) { qkv_ = shape; }

  // Whether the file has anything for the slot.
  bool has(WeightSlot slot) const;
  // The stacked rows of a slot, with their biases where the file has any.
  // The extent is that of the whole. `number` is "{e}" of the slot's stems.
  Weight matrix(WeightSlot slot, Extent extent, const Cut& cut = {}, int number = -1);
  // The same as one of a list that is multiplied at once.
  Weight listed_matrix(WeightSlot slot, Extent extent, const Cut& cut);
  bool joins_shared_experts() const { return backend_.joins_shared_experts(); }
  // The rows of several slots, one after the other: what is multiplied with the same input.
  Weight joined(const std::vector<SlotRows>& slots, int64_t cols);
  // One matrix per expert (or per head), from one tensor each or from slices of a rank-3 tensor; those of the range where
  // one is given.
  std::vector<Weight> bank(WeightSlot slot, int count, Extent extent, const Cut& cut = {},
                           std::optional<dist::Range> entries = {});
  // A vector of f32 on the device, joined from one tensor per head where a stem has "{e}"; optional_vector leaves it empty where the file has none.
  TensorView vector(WeightSlot slot, int64_t elements, std::string_view suffix = ".weight");
  TensorView optional_vector(WeightSlot slot, int64_t elements, std::string_view suffix = ".weight");
  // Of the vector the elements of these rows.
  TensorView vector(WeightSlot slot, int64_t elements, const Cut& rows);
  // The same on the host; empty where the file has none.
  std::vector<float> host_vector(WeightSlot slot, int64_t elements, std::string_view suffix = ".weight");

  // The slot ConvKernel, of the tensors of all its rows, stored [channels, 1, taps] each; of the channels those of the cut's
  // rows.
  kernels::CausalConv convolution(int64_t taps, int64_t channels, const Cut& kept = {});

  TensorView upload(const std::vector<float>& values);
  // View of a copy of our own, which stays as long as a prepared weight reads it; until then, up to drop_unread().
  TensorView keep(HostTensor tensor);
  // Gives back copies that no prepared weight reads. Views of stored() and keep() that were not prepared are void then.
  void drop_unread();
  // The stacked matrix, of which the cut alone is kept; its bias is as it was.
  Weight kept(WeightSlot slot, Weight whole, const Cut& cut);
  // By the back-end; what it has made its own form of need not stay in memory as it is stored.
  Weight prepared(Weight weight);
  // The output matrix of a model that multiplies with its embedding table.
  Weight prepared_tied(const Weight& table);
  Weight prepared_of_list(Weight weight) {
    weight.listed = true;
    return prepared(std::move(weight));
  }
  // The tensor of a slot's first row that the file has, folded but not prepared.
  std::optional<TensorView> stored(WeightSlot slot);

  void fail(std::string message);
  const Status& status() const { return status_; }

 private:
  void mark_read(const TensorView& view);  // the copy that it lies in, if any
  void drop_copy(const TensorView& view);  // where it is a whole one of our own that no weight reads
  void tell_of_types(WeightSlot slot, const std::map<std::string, int>& types);
  TensorView kept_columns(WeightSlot slot, TensorView rows, const std::vector<dist::Range>& cols);
  struct OrderedView {
    TensorView view;
    kernels::ColumnOrder order;  // null: that of what the matrix is multiplied with
  };
  struct Part {
    TensorView view;
    std::vector<float> bias;  // empty: none
    kernels::StoredTensor stored;
    kernels::ColumnOrder order;
  };
  // A plain copy of an ordered matrix in the place of it.
  TensorView in_order_of_x(const OrderedView& matrix);
  std::string full_name(std::string_view stem, int expert) const;
  std::optional<std::string> locate(const std::string& stem, std::string_view suffix) const {
    return locate_tensor(store_, stem, suffix);
  }
  // Of a slot with so many columns (0: not known). Some exports hold transposed what others do not; only the former
  // are transposed back, where the shape tells them apart.
  std::optional<Part> part(const NameRow& row, int expert, int64_t cols);
  std::optional<TensorView> slice(const std::string& tensor, TensorView view, int expert);
  std::optional<TensorView> stored_of_rank(const std::string& tensor, int rank, int expert);
  std::optional<TensorView> taken(const std::string& tensor, Result<HostTensor> made);
  // A matrix kept as MXFP4 blocks and scales, where the file has them.
  std::optional<TensorView> packed_blocks(const NameRow& row, const std::string& stem, int expert);
  // F8 values times their scales, where the file has any.
  std::optional<TensorView> scaled(const std::string& stem, TensorView values, int expert);
  // A matrix kept as several tensors, in the type that kernels read; nothing where the file has none.
  std::optional<OrderedView> quantized(const std::string& stem);
  // A type that only files have, as the one that kernels read.
  TensorView for_kernels(const std::string& stem, TensorView stored, int expert);
  // The stored vector of a row; "{e}" in its stem is `part`.
  std::optional<TensorView> stored_vector(const NameRow& row, int part, std::string_view suffix);
  std::vector<float> bias_of(const NameRow& row, const std::string& stem, int expert, int64_t rows);
  // Of all rows of the slot that the file has; `number` and `cols` as matrix() and part() have them.
  std::vector<Part> parts_of(WeightSlot slot, int number, int64_t cols);
  Weight stack(WeightSlot slot, const std::vector<Part>& parts, Extent extent, const Cut& cut);
  std::string where(WeightSlot slot) const;
  void fail_empty(WeightSlot slot, int64_t elements);

  const WeightNames& names_;
  const Quantization& quantization_;
  const formats::TensorStore& store_;
  kernels::Backend& backend_;
  ModelWeights& out_;
  int layer_ = -1;
  int bank_ = 1;        // experts of the bank being bound
  std::string prefix_;  // in the place of stems up to "{l}"; empty: they stay
  QkvShape qkv_;
  Status status_;
  bool told_of_f8_ = false, told_of_types_ = false;
  kernels::ColumnOrder order_;  // of the last matrix that has one: matrices with the same inputs share it
  struct Copy {
    size_t owner = 0;  // in out_.owners
    int64_t bytes = 0;
    bool read = false;  // by a prepared weight
  };
  std::map<const void*, Copy> copies_;  // by where they begin
};

}  // namespace sluice::models
