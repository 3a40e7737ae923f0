// Tells systemd how the service is: one datagram to the socket that NOTIFY_SOCKET names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::server {

class ServiceNotifier {
 public:
  // From the environment; says nothing where nobody listens.
  ServiceNotifier();
  ~ServiceNotifier();
  ServiceNotifier(const ServiceNotifier&) = delete;
  ServiceNotifier& operator=(const ServiceNotifier&) = delete;

  void send(std::string_view message) const;  // "READY=1"
  // How often the watchdog wants to hear from us, in seconds; nothing where there is none.
  std::optional<double> watchdog_interval() const { return interval_; }

 private:
  std::string address_;
  int socket_ = -1;
  std::optional<double> interval_;
};

}  // namespace sluice::server
