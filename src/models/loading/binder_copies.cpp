// What a binder copies into memory of its own, and how long it stays: until a back-end has a form of its own of it.
#include "formats/mapped_pages.h"
#include "models/loading/binder.h"

namespace sluice::models {

TensorView Binder::keep(HostTensor tensor) {
  const TensorView view = tensor.view;
  copies_[view.data] = {out_.owners.size(), view.bytes()};
  out_.owners.push_back(std::make_shared<HostTensor>(std::move(tensor)));
  return view;
}

Weight Binder::prepared(Weight weight) {
  const std::vector<TensorView> stored = weight.parts;
  weight = backend_.prepare(std::move(weight));
  for (const TensorView& part : stored) {
    if (kernels::reads(weight, part.data)) {
      mark_read(part);
    } else {
      formats::release_pages(store_, part);
      drop_copy(part);
    }
  }
  return weight;
}

Weight Binder::prepared_tied(const Weight& table) {
  Weight weight = backend_.prepare_tied(table);
  if (weight.packed != nullptr)
    for (const TensorView& part : weight.parts) formats::release_pages(store_, part);
  return weight;
}

void Binder::mark_read(const TensorView& view) {
  auto behind = copies_.upper_bound(view.data);
  if (behind == copies_.begin()) return;
  auto& [begin, copy] = *--behind;
  const auto* const data = static_cast<const std::byte*>(view.data);
  if (data < static_cast<const std::byte*>(begin) + copy.bytes) copy.read = true;
}

void Binder::drop_copy(const TensorView& view) {
  const auto own = copies_.find(view.data);
  if (own == copies_.end() || own->second.read || own->second.bytes != view.bytes()) return;
  out_.owners[own->second.owner].reset();
  copies_.erase(own);
}

void Binder::drop_unread() {
  for (const auto& [begin, copy] : copies_)
    if (!copy.read) out_.owners[copy.owner].reset();
  std::erase_if(copies_, [](const auto& one) { return !one.second.read; });
}

}  // namespace sluice::models
