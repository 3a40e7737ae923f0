// A model without weights: everything it says is a hash of the tokens before it, and depends on nothing else.
#pragma once

#include <cstdint>
#include <vector>

#include "request/step.h"

namespace sluice::sim {

using request::Request;

inline uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

inline uint64_t extend(uint64_t hash, Token token) {
  return mix(hash ^ (static_cast<uint64_t>(token) + 1));
}

// The hash behind token i of a prompt: of its token, of what stands in its place, and of its positions.
inline uint64_t extend(uint64_t hash, const Request& request, size_t i) {
  const int at = static_cast<int>(i);
  hash = extend(hash, request.prompt[i]);
  for (const request::EmbeddingSpan& span : request.spans) {
    if (span.begin <= at && at < span.end)
      hash = mix(hash ^ (uint64_t{span.content[0]} << 32) ^ static_cast<uint64_t>(at - span.begin));
  }
  for (int section = 0; section < request.positions.sections && !request.positions.values.empty(); ++section)
    hash = mix(hash ^ static_cast<uint64_t>(request.positions.at(section, at)));
  return hash;
}

inline constexpr Token kVocab = 64;
inline constexpr Token kEnd = 0;  // the end token of the fake model

inline Token invent(uint64_t hash, int choice) {
  return static_cast<Token>(mix(hash + 77 * static_cast<uint64_t>(choice)) % kVocab);
}

inline uint64_t hash_of(const std::vector<uint64_t>& lanes) {
  uint64_t all = 0;
  for (const uint64_t lane : lanes) all = mix(all ^ lane);
  return all;
}

// The candidate that a contrastive search keeps.
inline size_t chosen_lane(const std::vector<uint64_t>& lanes) {
  return mix(hash_of(lanes)) % lanes.size();
}

// How a search of `width` lanes goes on from the hashes of its lanes.
inline std::vector<request::LaneMove> invent_moves(const std::vector<uint64_t>& lanes, int width,
                                                   bool contrastive) {
  std::vector<request::LaneMove> moves;
  for (int i = 0; i < width; ++i) {
    const uint64_t pick = mix(hash_of(lanes) + static_cast<uint64_t>(i));
    const size_t parent = contrastive ? chosen_lane(lanes) : pick % lanes.size();
    moves.push_back({static_cast<int>(parent), static_cast<Token>(mix(pick) % kVocab)});
  }
  return moves;
}

// What a hidden state is made of, and how several of them make a vector.
inline uint64_t pool(uint64_t before, uint64_t hash) {
  return mix(before ^ hash);
}

inline std::vector<float> vector_of(uint64_t pooled) {
  return {static_cast<float>(pooled & 0xffffff), static_cast<float>(pooled >> 40)};
}

// What a request must give, alone, with no scheduler: the tokens of each choice or hypothesis.
inline std::vector<std::vector<Token>> expected_tokens(const Request& request) {
  const int width = request::sequence_count(request.sampling());
  uint64_t prompt = 1;
  for (size_t i = 0; i < request.prompt.size(); ++i) prompt = extend(prompt, request, i);
  std::vector<std::vector<Token>> results;
  if (request::sampling_of(request.sampling()) != nullptr) {
    for (int choice = 0; choice < width; ++choice) {
      std::vector<Token>& tokens = results.emplace_back();
      uint64_t hash = prompt;
      while (static_cast<int>(tokens.size()) < request.sampling().max_tokens) {
        tokens.push_back(invent(hash, choice));
        hash = extend(hash, tokens.back());
        if (tokens.back() == kEnd && !request.sampling().ignore_eos) break;
      }
    }
    return results;
  }
  const bool contrastive = std::holds_alternative<request::ContrastiveSearch>(request.sampling().method);
  results.emplace_back();
  std::vector<uint64_t> hashes{prompt};
  for (int i = 0; i < request.sampling().max_tokens; ++i) {
    std::vector<std::vector<Token>> next;
    std::vector<uint64_t> next_hashes;
    for (const request::LaneMove& move : invent_moves(hashes, width, contrastive)) {
      next.push_back(results[static_cast<size_t>(move.parent)]);
      next.back().push_back(move.token);
      next_hashes.push_back(extend(hashes[static_cast<size_t>(move.parent)], move.token));
    }
    results = std::move(next);
    hashes = std::move(next_hashes);
  }
  if (contrastive) results = {results[chosen_lane(hashes)]};
  return results;
}

// The vector that a request must give.
inline std::vector<float> expected_vector(const Request& request) {
  const bool mean = request.pooling()->of == request::Pooling::Of::Mean;
  uint64_t hash = 1, pooled = 0;
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    hash = extend(hash, request, i);
    pooled = pool(mean ? pooled : 0, hash);
  }
  return vector_of(pooled);
}

}  // namespace sluice::sim
