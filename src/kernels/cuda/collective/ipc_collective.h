// Collectives of our own: ranks of one machine map each other's memory by CUDA IPC, those of one process have it already.
#pragma once

#include <array>

#include "kernels/cuda/collective/collective_params.h"
#include "kernels/cuda/collective/introductions.h"
#include "kernels/cuda/step/step_context.h"

namespace sluice::kernels::cuda {

class IpcCollective final : public DeviceCollective {
 public:
  // The context outlives the result. `patience`: seconds that a kernel waits for a rank.
  static Result<std::unique_ptr<DeviceCollective>> join(StepContext& step, const RankExchange& ranks,
                                                        double patience);
  ~IpcCollective() override;
  IpcCollective(const IpcCollective&) = delete;
  IpcCollective& operator=(const IpcCollective&) = delete;

  std::string name() const override { return "ipc"; }
  void add_up(TensorView x) override;
  bool add_up_rms_norm(TensorView out, const Residual& x, const RmsGain& gain) override;
  void gather_columns(TensorView out, TensorView part) override;
  void clear_rows(TensorView x, std::span<const int32_t> kept) override;
  std::optional<int> missing_rank() const override;
  double patience_seconds() const override { return patience_; }

 private:
  IpcCollective(StepContext& step, double patience) : step_(step), patience_(patience) {}
  // Text of what failed, empty where nothing has.
  std::string allocate(int rank, int size);
  std::string open(const RankExchange& ranks);
  int64_t one_shot_elements(DType type) const;

  StepContext& step_;
  double patience_;
  DeviceBuffer memory_;
  PinnedBuffer missing_;
  CollectiveRanks ranks_ = blank<CollectiveRanks>();
  std::vector<void*> opened_;
};

// Rows with kept[i] == 0 become zeros, in the order of the step's work.
void clear_rows(StepContext& step, TensorView x, std::span<const int32_t> kept);

}  // namespace sluice::kernels::cuda
