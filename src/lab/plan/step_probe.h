// Times the GEMMs of a model's step, one after the other as the step has them and with weights of their own: what the
// caches hold of these is what they hold of the model's.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "lab/plan/machine.h"
#include "lab/stopwatch.h"

namespace sluice::lab {

class StepProbe {
 public:
  // The output matrix last. The back-end outlives it.
  StepProbe(kernels::Backend& backend, const std::vector<StepGemm>& step, TimeSource time);

  // One time of every shape with every number of rows; `overhead`: of an operation, which is left out of them.
  void sample(double overhead);
  // The mean of the samples but the slowest.
  void append(std::vector<GemmRate>& rates) const;

 private:
  struct Matrix {
    size_t shape = 0;  // in shapes_
    std::vector<std::byte> stored = {};
    kernels::Weight weight = {};
  };
  struct Shape {
    StepGemm gemm;
    std::vector<std::vector<double>> samples;  // by rows: seconds per element
    double seconds = 0;                        // of the sample that is being taken
    int calls = 0;
  };

  void run_layers(int rows, double work);
  void run(const Matrix& matrix, int rows);
  size_t shape_of(const StepGemm& gemm);

  kernels::Backend& backend_;
  TimeSource time_;
  std::vector<Shape> shapes_;
  std::vector<Matrix> matrices_;
  size_t next_ = 0;  // of the matrices of layers
  kernels::Memory x_, out_;
};

// The mean of all but the slowest, which has the first touch of its memory in it. A step is a sum over operations: what
// disturbs some of them now and then is in its time by its mean, and a median would leave it out.
double mean_of(std::span<const double> values);

// [rows, width] of f32.
kernels::Memory rows_of_halves(kernels::Backend& backend, int64_t rows, int64_t width);
// A matrix in `memory`, which outlives it, prepared as a model's are.
kernels::Weight prepared_matrix(kernels::Backend& backend, const StepGemm& gemm,
                                std::vector<std::byte>& memory);

}  // namespace sluice::lab
