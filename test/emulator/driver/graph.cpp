// Graphs: nodes with dependencies, made executable, changed and launched.
//
// Nodes run in an order that keeps the dependencies and nothing else: of the nodes that are ready
// the first that was added, or the last if the order is backwards. So a missing dependency shows.
#include <algorithm>
#include <map>
#include <set>

#include "api.h"
#include "copy.h"
#include "launch.h"
#include "memory.h"
#include "report.h"
#include "settings.h"

using namespace emulator;

namespace {

// CUDA_MEMCPY3D, of which one row is supported.
struct CopyDescription {
  struct Side {
    size_t x, y, z, level_of_detail;
    int memory_type;
    void *host;
    DevicePointer device;
    void *array, *reserved;
    size_t pitch, height;
  };
  Side source, target;
  size_t bytes, rows, depth;
};

// CUDA_MEMSET_NODE_PARAMS.
struct FillDescription {
  DevicePointer target;
  size_t pitch;
  unsigned value, bytes_each;
  size_t count, rows;
  void *context;
};

struct NodeWork {
  std::function<void()> run;
  // of the kernel, or of the memory: an executable graph is not changed to others
  std::vector<int> devices;
};

struct Node {
  NodeWork work;
  std::vector<Node *> after;
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
};

// An executable graph has nodes of its own, so that changes do not reach the graph it is of.
struct ExecutableGraph {
  struct Step {
    NodeWork work;
    std::vector<size_t> after;
  };
  std::vector<Step> steps;
  std::map<const Node *, size_t> numbers;

  void run() const;
};

void ExecutableGraph::run() const {
  std::vector<bool> done(steps.size());
  auto is_ready = [&](size_t i) {
    if (done[i]) return false;
    return std::all_of(steps[i].after.begin(), steps[i].after.end(),
                       [&](size_t j) { return done[j]; });
  };
  for (size_t count = 0; count < steps.size(); count++) {
    size_t chosen = steps.size();
    for (size_t i = 0; i < steps.size(); i++) {
      if (!is_ready(i)) continue;
      chosen = i;
      if (!settings().backwards) break;
    }
    if (steps[chosen].work.run) steps[chosen].work.run();
    done[chosen] = true;
  }
}

Result launch_work(const LaunchDescription &description, NodeWork *work) {
  std::shared_ptr<Launch> launch;
  if (Result wrong = Launch::make(description, &launch)) return wrong;
  auto run = [launch] {
    if (!launch->context().failure) launch->run();
  };
  *work = {run, {launch->context().device}};
  return SUCCESS;
}

Result place_of(const CopyDescription::Side &side, size_t bytes, Place *place) {
  constexpr int HOST_MEMORY = 1;
  if (side.memory_type == HOST_MEMORY) {
    *place = host_place(static_cast<char *>(side.host) + side.x);
    return SUCCESS;
  }
  return device_place(side.device + side.x, bytes, place);
}

Result copy_work(Context &context, const CopyDescription &description, NodeWork *work) {
  if (description.rows > 1 || description.depth > 1) return NOT_SUPPORTED;
  if (!description.bytes || !description.rows || !description.depth) {
    report("a node of a graph copies nothing");
    return INVALID_VALUE;
  }
  Place target, source;
  size_t bytes = description.bytes;
  if (Result wrong = place_of(description.target, bytes, &target)) return wrong;
  if (Result wrong = place_of(description.source, bytes, &source)) return wrong;
  if (Result wrong = check_copy(context, target, source)) return wrong;
  auto run = [=] { std::copy(source.begin, source.begin + bytes, target.begin); };
  *work = {run, {target.device, source.device}};
  return SUCCESS;
}

Result fill_work(Context &context, const FillDescription &description, NodeWork *work) {
  if (description.rows > 1) return NOT_SUPPORTED;
  Fill fill{description.target, description.value, description.bytes_each, description.count};
  if (Result wrong = fill.check(context)) return wrong;
  *work = {[fill] { fill.run(); }, {context.device}};
  return SUCCESS;
}

Result add(Node **handle, Graph *graph, Node *const *after, size_t count, NodeWork work) {
  graph->nodes.push_back(std::make_unique<Node>());
  *handle = graph->nodes.back().get();
  (*handle)->work = std::move(work);
  if (count) (*handle)->after.assign(after, after + count);
  return SUCCESS;
}

// Replaces what a node of an executable graph does.
Result replace(ExecutableGraph *graph, const Node *node, NodeWork work) {
  auto found = graph->numbers.find(node);
  if (found == graph->numbers.end()) return INVALID_VALUE;
  NodeWork &before = graph->steps[found->second].work;
  if (before.devices != work.devices) {
    report("a node of an executable graph is changed to another device");
    return INVALID_VALUE;
  }
  before = std::move(work);
  return SUCCESS;
}

}  // namespace

API cuGraphCreate(Graph **graph, unsigned) {
  return in_context([&](Context &) {
    *graph = new Graph;
    return SUCCESS;
  });
}

API cuGraphDestroy(Graph *graph) {
  delete graph;
  return SUCCESS;
}

API cuGraphAddKernelNode_v2(Node **node, Graph *graph, Node *const *after, size_t count,
                            const LaunchDescription *description) {
  return in_context([&](Context &) {
    NodeWork work;
    if (Result wrong = launch_work(*description, &work)) return wrong;
    return add(node, graph, after, count, std::move(work));
  });
}

API cuGraphAddMemcpyNode(Node **node, Graph *graph, Node *const *after, size_t count,
                         const CopyDescription *description, Context *of) {
  return in_context([&](Context &context) {
    NodeWork work;
    if (Result wrong = copy_work(of ? *of : context, *description, &work)) return wrong;
    return add(node, graph, after, count, std::move(work));
  });
}

API cuGraphAddMemsetNode(Node **node, Graph *graph, Node *const *after, size_t count,
                         const FillDescription *description, Context *of) {
  return in_context([&](Context &context) {
    NodeWork work;
    if (Result wrong = fill_work(of ? *of : context, *description, &work)) return wrong;
    return add(node, graph, after, count, std::move(work));
  });
}

API cuGraphAddEmptyNode(Node **node, Graph *graph, Node *const *after, size_t count) {
  return in_context([&](Context &) { return add(node, graph, after, count, {}); });
}

API cuGraphInstantiateWithFlags(ExecutableGraph **made, Graph *graph, unsigned long long) {
  return in_context([&](Context &) {
    auto executable = std::make_unique<ExecutableGraph>();
    for (const auto &node : graph->nodes) {
      ExecutableGraph::Step step{node->work, {}};
      for (const Node *other : node->after) {
        auto found = executable->numbers.find(other);
        if (found == executable->numbers.end()) return INVALID_VALUE;
        step.after.push_back(found->second);
      }
      executable->numbers[node.get()] = executable->steps.size();
      executable->steps.push_back(std::move(step));
    }
    *made = executable.release();
    return SUCCESS;
  });
}

API cuGraphExecKernelNodeSetParams_v2(ExecutableGraph *graph, const Node *node,
                                      const LaunchDescription *description) {
  return in_context([&](Context &) {
    NodeWork work;
    if (Result wrong = launch_work(*description, &work)) return wrong;
    return replace(graph, node, std::move(work));
  });
}

API cuGraphExecMemcpyNodeSetParams(ExecutableGraph *graph, const Node *node,
                                   const CopyDescription *description, Context *of) {
  return in_context([&](Context &context) {
    NodeWork work;
    if (Result wrong = copy_work(of ? *of : context, *description, &work)) return wrong;
    return replace(graph, node, std::move(work));
  });
}

API cuGraphExecMemsetNodeSetParams(ExecutableGraph *graph, const Node *node,
                                   const FillDescription *description, Context *of) {
  return in_context([&](Context &context) {
    NodeWork work;
    if (Result wrong = fill_work(of ? *of : context, *description, &work)) return wrong;
    return replace(graph, node, std::move(work));
  });
}

API cuGraphUpload(ExecutableGraph *, void *) { return SUCCESS; }

API cuGraphLaunch(ExecutableGraph *graph, void *handle) {
  return in_context([&](Context &context) {
    // later changes of the parameters are for later launches
    context.stream(handle).push([steps = *graph] { steps.run(); });
    return SUCCESS;
  });
}

API cuGraphExecDestroy(ExecutableGraph *graph) {
  delete graph;
  return SUCCESS;
}
