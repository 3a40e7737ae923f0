// The requests in the engine, seen from their clients: tokens become text and events, and every request gets
// exactly one Finished.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/events.h"
#include "engine/metrics.h"
#include "engine/trace.h"
#include "sched/scheduler.h"

namespace sluice::engine {

class OutputProcessor {
 public:
  OutputProcessor(Metrics& metrics, Trace& trace) : metrics_(metrics), trace_(trace) {}

  // `patience`: how long it may wait for its start. What the request asks for is shared with the scheduler; the
  // submission's own is not read.
  void add(std::shared_ptr<const request::Request> request, Submission submission, TimePoint received,
           std::optional<Seconds> patience);
  void start(const request::Admission& admission, TimePoint now);

  // What the scheduler must be told after it told us something.
  struct PostAction {
    bool stop = false;           // end this choice: its text met a stop string
    std::optional<Error> error;  // end the request: its text could not be made
  };
  PostAction take(sched::Progress& progress, TimePoint now);

  // The last event of a request. Stop: all choices have ended.
  void end(RequestId id, FinishReason reason, std::optional<Error> error, TimePoint now);

  // The only event of a request whose deadline cannot be met.
  void refuse(RequestId id, Error error, int retry_after_s, TimePoint now);

  // While holding, events are kept back; those kept are sent when it ends.
  void set_holding(bool holding, TimePoint now);

  bool contains(RequestId id) const { return requests_.contains(id); }
  size_t size() const { return requests_.size(); }
  std::vector<RequestId> ids() const;
  // The last that came of those that have not ended.
  std::optional<RequestId> youngest() const;
  struct Deadline {
    TimePoint at{};
    RequestId request;
    bool of_start = false;  // it should have started by then; else, ended
  };
  // The first one there is; requests that have ended and are held back have none.
  std::optional<Deadline> next_deadline() const;

 private:
  struct Choice {
    std::unique_ptr<TextStream> text;
    Delta kept;  // of choices of which only the best are sent
    int tokens = 0;
    double logprob = 0;  // sum
    std::optional<FinishReason> reason;
    std::string stop_string;  // what met the reason, as in ChoiceEnd
    std::optional<Token> stop_token;
    std::optional<TimePoint> first_sent, last_sent;
  };
  struct Active {
    std::shared_ptr<const request::Request> request;
    // As in Submission.
    std::function<void(Event)> deliver;
    std::function<std::unique_ptr<TextStream>(int choice)> text;
    std::shared_ptr<const void> kept;

    std::vector<Choice> choices;
    bool ranks_choices = false;  // only the n best choices are sent, at the end
    bool ended = false;          // the last event is held back
    TimePoint received{};
    std::optional<TimePoint> start_by, end_by;
    std::optional<TimePoint> deadline;  // the earlier of those that still matter, as in deadlines_
    std::optional<TimePoint> started, first_sent, last_sent;
    Usage usage;
    std::optional<int> retry_after_s;  // as in Finished
    std::vector<Event> held;
  };

  void set_deadline(RequestId id, Active& active);
  Choice& choice(Active& active, int index);
  static ChoiceEnd end_of(const Choice& choice, int index, double score);
  Result<bool> add_text(Active& active, sched::Progress& progress, Delta& delta);
  Status add_hypotheses(Active& active, std::vector<request::Hypothesis>& hypotheses, TimePoint now);
  void send_best(Active& active, TimePoint now);
  void emit(Active& active, Event event, TimePoint now);
  void send(Active& active, Event event, TimePoint now);
  void stamp_tokens(Active& active, const Delta& delta, TimePoint now);
  void complete(const Active& active, Finished& finished, TimePoint now);
  void forget(RequestId id);

  Metrics& metrics_;
  Trace& trace_;
  std::unordered_map<RequestId, Active> requests_;
  std::set<std::pair<TimePoint, RequestId>> deadlines_;
  std::vector<RequestId> held_;
  bool holding_ = false;
};

}  // namespace sluice::engine
