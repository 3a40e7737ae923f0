// Scheduler scripts: requests, steps and what each step must plan, in words. One .txt per scenario under
// data/.
//
//   blocks 4 x 16                   device blocks and their size; `window 32 blocks 6` adds a group with a
//   window host 8 | disk 8                 blocks of the lower tiers, in every group budget 64 | seqs 8 |
//   scheme static | layout padded | prefill separate | kv preallocate | preempt swap wait 2 | quantum 16 |
//   end 7     patience of the scheme in seconds; deficit quantum; an end token prefix off | kv-cache off
//   states 12                       slots for states of sequences, as another group
//   drafts 3 | accept 2             so many guesses come with each token, and so many of a work's are right
//   rope recomputed 40 | rope kept 40 3   sequences over 40 tokens have other rotary frequencies, of 3 sets in all; work is
//                                   then shown with the set of its last position, as A[0,41)@1* add
//   A prompt 40 max 20          options: client X, priority 1, n 3, beam 2, contrastive 2, shares B 32 (first
//                                   tokens equal to B's), salt s, span 4 9 (bidirectional), picture 4 9, stops 3 (the third token is the end), logs
//   refuse A prompt 400 max 20 => words of the error
//   cancel A | finish A 1 | fail A | lose A | postpone A | close | time 2.5
//   step => A[0,40)*                work in order, * where a token is sampled, +3 behind it three drafts; B.1 is a further choice or
//   lane;
//                                   then: preempt B, pad 2x40, copy 1, out 3, in 3 (block moves), end A,
//                                   deliver
//   stages 2                        so many steps are in flight: what a step gave is known when the second after it is planned
//   steps 5                         steps whose work is not looked at
//   share 10 20                     tokens and milliseconds of prompts with pictures in the last step (with towers parts)
//   free 4 | free-states 3          device blocks of the first group, or state slots, that nobody holds
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "sched/scheduler.h"

namespace sluice::sched::testing {

class Script {
 public:
  // Runs a script file; every line that does not hold is a failed expectation that shows the line.
  void run(const std::string& path);

 private:
  struct Named {
    std::string name;
    std::shared_ptr<const request::Request> request;
    int stops = 0;    // the token with which it ends; 0: none
    int sampled = 0;  // tokens or moves so far
    SeqId group;
  };

  void run_line(const std::string& verb, std::istringstream& words);
  bool run_event(const std::string& verb, std::istringstream& words);
  bool set_number(const std::string& verb, std::istringstream& words);
  bool set_choice(const std::string& verb, std::istringstream& words);
  void build();
  const request::Request& read_request(std::istringstream& words);
  bool read_request_option(const std::string& word, std::istringstream& words, request::Request& request,
                           Named& named);

  // Plans, writes the plan down as a script would, and lets every sequence that samples have a token.
  std::string step();
  std::string label(SeqId seq) const;
  std::vector<request::Outcome> invent(const request::Step& step);
  static request::SearchMove invent_move(const Named& named);

  kv::KvManagerOptions kv_options_;
  SchedulerOptions options_;
  std::unique_ptr<kv::KvManager> kv_manager_;
  std::unique_ptr<Scheduler> scheduler_;
  TimePoint now_{};
  Token next_token_ = 1000;
  std::map<request::RequestId, Named> requests_;
  std::map<std::string, request::RequestId> ids_;
  std::map<SeqId, std::pair<request::RequestId, int>> seqs_;  // and which of its choices or lanes
  int drafts_ = 0, accept_ = 0;  // guesses behind each token; those of a work that are right
  request::PictureShare share_;  // of the last step
  std::set<request::RequestId> failing_, losing_, postponing_;
  std::deque<request::Step> in_flight_;
};

}  // namespace sluice::sched::testing
