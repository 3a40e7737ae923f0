#include "models/group/layer_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace sluice::models {

namespace {

struct CutLayer {
  const Share& share;
  const Share& expert_inner;
  const ModelSpec& spec;
  int64_t layer;

  Error uncut(std::string_view why) const {
    return Error{ErrorCode::Unsupported,
                 fmt::format("layer {} {}: it cannot be cut over {} ranks (--tp); --pp cuts between layers",
                             layer, why, share.size)};
  }
  Status divide(int& count, std::string_view what) const { return divide(count, what, share.size); }
  Status divide(int& count, std::string_view what, int ranks) const {
    if (count % ranks != 0)
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("layer {} has {} {}, which {} ranks (--tp) cannot share equally", layer, count,
                               what, ranks)};
    count /= ranks;
    return {};
  }
  // Of what heads of several ranks may read.
  Status divide_or_keep(int& count, std::string_view what) const {
    if (count % share.size != 0 && share.size % count != 0)
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("layer {} has {} {}, which {} ranks (--tp) cannot share: one of the numbers must "
                      "divide the other",
                      layer, count, what, share.size)};
    count = std::max(1, count / share.size);
    return {};
  }

  Status operator()(Attention& m) const {
    if (m.qk_norm == QkNorm::Whole && spec.norm != NormKind::Rms)
      return uncut("norms the queries of all heads by their mean");
    if (m.norm_output && spec.norm != NormKind::Rms)
      return uncut("norms what all heads attended to by its mean");
    m.indexer.heads = static_cast<int>(index_heads_of(m, share).size());
    m.kv_copies = std::max(1, share.size / std::max(1, m.kv_heads));
    if (Status status = divide_or_keep(m.kv_heads, "KV heads"); !status) return status;
    if (m.indexer.heads > 0 && m.kv_heads % m.indexer.heads != 0)
      return uncut("chooses what heads on several ranks attend to");
    return divide(m.heads, "heads");
  }
  Status operator()(LatentAttention& m) const { return divide(m.heads, "heads"); }
  Status operator()(NoMixer&) const { return {}; }
  Status operator()(ShortConv& m) const {
    m.channels = spec.dim;
    return divide(m.channels, "channels of a convolution");
  }
  Status operator()(GatedDelta& m) const {
    if (Status status = divide_or_keep(m.key_heads, "key heads of linear attention"); !status) return status;
    return divide(m.value_heads, "value heads of linear attention");
  }
  Status operator()(StateSpace& m) const {
    if (Status status = divide(m.heads, "heads of a state space"); !status) return status;
    if (Status status = divide_or_keep(m.groups, "groups of a state space"); !status) return status;
    if (m.norm == StateSpace::Norm::None) return {};
    m.norm_ranks = std::max(1, share.size / m.norm_groups);
    return divide_or_keep(m.norm_groups, "norms of a state space");
  }
  Status operator()(ChannelScan& m) const { return divide(m.inner, "channels of a state space"); }
  Status operator()(AttentionBesideStateSpace& m) const {
    if (Status status = (*this)(m.attention); !status) return status;
    return (*this)(m.scan);
  }
  Status operator()(StateSpaceAfterBlock& m) const {
    if (Status status = (*this)(m.attention); !status) return status;
    if (Status status = (*this)(m.ffn); !status) return status;
    return (*this)(m.scan);
  }

  Status operator()(DenseFfn& f) const {
    if (f.norm_inner && spec.norm != NormKind::Rms)
      return uncut("norms the feed-forward's inner width by its mean");
    if (f.cuts_off()) return uncut("cuts gates off by the mean of the feed-forward's inner width");
    return divide(f.inner, "inner numbers of the feed-forward");
  }
  Status operator()(MoeFfn& f) const {
    if (Status status = divide(f.inner, "inner numbers of an expert", expert_inner.size); !status)
      return status;
    return divide(f.shared_inner, "inner numbers of the shared expert");
  }
  Status operator()(DenseBesideExperts& f) const {
    if (Status status = (*this)(f.dense); !status) return status;
    return (*this)(f.experts);
  }
  Status operator()(XieluFfn& f) const { return divide(f.inner, "inner numbers of the feed-forward"); }
  Status operator()(NoFfn&) const { return {}; }
};

struct NormsOverRanks {
  bool operator()(const Attention& m) const { return m.qk_norm == QkNorm::Whole || m.norm_output; }
  bool operator()(const StateSpace& m) const { return m.norm_ranks > 1; }
  bool operator()(const AttentionBesideStateSpace& m) const {
    return (*this)(m.attention) || (*this)(m.scan);
  }
  bool operator()(const StateSpaceAfterBlock& m) const {
    return (*this)(m.attention) || (*this)(m.ffn) || (*this)(m.scan);
  }
  bool operator()(const DenseFfn& f) const { return f.norm_inner; }
  bool operator()(const DenseBesideExperts& f) const { return f.dense.norm_inner; }
  bool operator()(const auto&) const { return false; }
};

}  // namespace

Status cut_layer(LayerSpec& layer, const ModelSpec& spec, const Placement& placement, int64_t number) {
  const CutLayer cutter{placement.tensor, placement.expert_inner, spec, number};
  if (Status status = std::visit(cutter, layer.mixer); !status) return status;
  return std::visit(cutter, layer.ffn);
}

bool norms_over_ranks(const LayerSpec& layer) {
  return std::visit(NormsOverRanks(), layer.mixer) || std::visit(NormsOverRanks(), layer.ffn);
}

}  // namespace sluice::models
