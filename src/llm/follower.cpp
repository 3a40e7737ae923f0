#include "llm/follower.h"

#include "llm/model_store.h"
#include "models/model.h"
#include "runtime/device.h"
#include "runtime/parallel/worker.h"

namespace sluice::llm {

Status follow_session(const SessionOptions& options) {
  Result<std::string> path = resolve_model(options.model);
  if (!path) return path.error();
  Result<std::shared_ptr<kernels::Backend>> backend = runtime::make_backend(options.engine.device);
  if (!backend) return backend.error();
  const auto silent = [](float) {};
  for (;;) {
    Result<models::ModelFiles> files = models::open_model(
        *path, {.serving_context = options.engine.context, .mmproj = options.engine.mmproj});
    if (!files) return files.error();
    Result<std::unique_ptr<models::Model>> model =
        models::load_model(std::move(*files), *backend, silent, options.group);
    if (!model) return model.error();
    Result<std::vector<int>> stage_layers = runtime::run_worker_until_cut(**model);
    if (!stage_layers) return stage_layers.error();
    if (stage_layers->empty()) return {};
    options.group->cut_by(std::move(*stage_layers));
  }
}

}  // namespace sluice::llm
