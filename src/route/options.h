// What can be said about the router on the command line.
#pragma once

#include <string>
#include <vector>

#include "base/options.h"

namespace sluice::route {

struct RouteOptions {
  std::string host = "127.0.0.1";
  int port = 8080;
  std::vector<std::string> replicas;  // "http://host:port"
  std::string replica_key_file;       // its first line is the key that replicas are asked for reports with
  std::vector<std::string> allowed_hosts;
  int max_running = 256;        // requests of one replica at once
  int max_body = 32 << 20;      // bytes
  double poll_interval = 0.25;  // seconds
  double connect_timeout = 2;
  double header_timeout = 10;
  double idle_timeout = 75;
  double shutdown_timeout = 30;

  void declare(OptionSet& options);
};

}  // namespace sluice::route
