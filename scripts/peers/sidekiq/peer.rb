# Sidekiq as a peer: single tasks on Redis, with its default settings. Its chains and joins of tasks (batches) are in its
# paid edition. See peer/peer.go for the commands.

require "sidekiq"

SLOW_SECONDS = 600
NAP_SECONDS = 0.1
BATCH = 1000

$stdout.sync = true
Sidekiq.logger = Logger.new($stderr, level: Logger::WARN)
Sidekiq.configure_client { |config| config.redis = {url: ENV["PEER_URL"]} }
Sidekiq.configure_server do |config|
  config.redis = {url: ENV["PEER_URL"]}
  config.on(:startup) { puts "ready" }
end

# Threads share the file; a line is one write.
MARKS = File.open(ENV["PEER_MARKS"], File::WRONLY | File::APPEND) if ENV["PEER_MARKS"]

def mark(kind, number)
  MARKS.syswrite("#{kind} #{number} #{Process.clock_gettime(Process::CLOCK_REALTIME, :microsecond)}\n")
end

class Single
  include Sidekiq::Job

  def perform(number)
    mark("single", number)
  end
end

class Slow
  include Sidekiq::Job

  def perform(number)
    mark("slow", number)
    sleep SLOW_SECONDS
  end
end

class Nap
  include Sidekiq::Job

  def perform(number)
    sleep NAP_SECONDS
    mark("nap", number)
  end
end

def timed
  began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  before = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :microsecond)
  yield
  cpu = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID, :microsecond) - before
  puts "#{Process.clock_gettime(Process::CLOCK_MONOTONIC) - began} #{cpu}"
end

def send_lines
  $stdin.each_line do |line|
    kind, number, size = line.split
    began = Process.clock_gettime(Process::CLOCK_REALTIME, :microsecond)
    case kind
    when "single" then Single.perform_async(number.to_i)
    when "slow" then Slow.perform_async(number.to_i)
    when "fan" then Nap.perform_bulk(Array.new(size.to_i) { |i| [i] })
    else began = "none"
    end
    puts began
  end
end

if __FILE__ == $0
  command, count = ARGV
  case command
  when "version" then puts Sidekiq::VERSION
  when "work" then exec "/usr/bin/sidekiq", "--require", __FILE__, "--concurrency", count
  when "send" then send_lines
  when "enqueue" then timed { count.to_i.times { |number| Single.perform_async(number) } }
  when "bulk"
    timed do
      (0...count.to_i).each_slice(BATCH) { |numbers| Single.perform_bulk(numbers.map { |number| [number] }) }
    end
  end
end
