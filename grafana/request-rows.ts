/** Rows of the dashboard about requests: traffic, errors, latency, streams, usage, rules and tools. Pure. */
import { LIVE, of, quantile, type Row, share, sumRate } from './panel.ts'

export const REQUEST_ROWS: readonly Row[] = [
  {
    title: 'Traffic and load shedding',
    panels: [
      {
        title: 'Requests by route',
        description: 'Finished requests per second. Paths that match no route are counted as other.',
        unit: 'reqps',
        stacked: true,
        queries: [{ expr: sumRate('gateway_requests_total', 'route'), legend: '{{route}}' }],
      },
      {
        title: 'Shed requests by reason',
        description:
          'Requests per second that were refused before they were read, by limit. If in_flight, lag or buffered (503, an overloaded thread) stay above zero, add threads or instances. Those that begin with key_ (429): a key exceeded its own limit.',
        unit: 'reqps',
        queries: [{ expr: sumRate('gateway_shed_total', 'reason'), legend: '{{reason}}' }],
      },
      {
        title: 'Queued requests',
        description:
          'Requests that wait because their API key has all its requests open. End users of a key get equal shares; raise limits.openPerKey if requests of many end users wait.',
        unit: 'short',
        queries: [{ expr: `sum by (instance) (${of('gateway_requests_queued')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Queue wait, p95 by outcome',
        description:
          'How long these requests waited: started, refused (the queue was full), expired (limits.waitMs), left (the client has gone).',
        unit: 's',
        queries: [{ expr: quantile(0.95, 'gateway_queue_wait_seconds', 'outcome'), legend: '{{outcome}}' }],
      },
      {
        title: 'Refused connections',
        description:
          'Client connections per second that were closed at once. limit: the thread had too many; address: one address had too many.',
        unit: 'cps',
        queries: [{ expr: sumRate('gateway_connections_refused_total', 'reason'), legend: '{{reason}}' }],
      },
      {
        title: 'Open connections',
        description: 'Client connections, idle ones included.',
        unit: 'short',
        queries: [{ expr: `sum by (instance) (${of('gateway_open_connections')})`, legend: '{{instance}}' }],
      },
    ],
  },
  {
    title: 'Errors',
    panels: [
      {
        title: 'Failed requests, share',
        description:
          'Failed requests of all finished ones, failures within streams included, without those of batches. The objective of the alert rules is 0.1 %.',
        unit: 'percentunit',
        alarm: 0.001,
        queries: [
          {
            expr: share(
              sumRate('gateway_requests_total', '', `outcome="failed",${LIVE}`),
              sumRate('gateway_requests_total', '', LIVE),
            ),
            legend: 'failed',
          },
        ],
      },
      {
        title: 'Status classes',
        description:
          'Finished requests per second by the class of the status that was sent. A stream that failed half-way has sent 200 already: it shows in the panel on the left alone.',
        unit: 'reqps',
        stacked: true,
        queries: [{ expr: sumRate('gateway_requests_total', 'status_class'), legend: '{{status_class}}' }],
      },
      {
        title: 'Aborted and refused requests, share',
        description:
          'Clients that disconnected before the end, and requests that were refused, of all finished ones. A jump of aborted ones often means that something before or behind the gateway became slow.',
        unit: 'percentunit',
        queries: ['aborted', 'refused'].map(outcome => ({
          expr: share(
            sumRate('gateway_requests_total', '', `outcome="${outcome}",${LIVE}`),
            sumRate('gateway_requests_total', '', LIVE),
          ),
          legend: outcome,
        })),
      },
    ],
  },
  {
    title: 'Latency by stage',
    panels: [
      {
        title: 'Request duration, p95 by route',
        description: 'From the request line to the last byte of the answer, streams included.',
        unit: 's',
        queries: [{ expr: quantile(0.95, 'gateway_request_duration_seconds', 'route'), legend: '{{route}}' }],
      },
      {
        title: 'Stage duration, p95',
        description:
          'Each stage for itself; quantiles of stages do not add up. Upload is the client’s time, upstream_first_byte, first_token and stream are the provider’s, tools is that of server tools.',
        unit: 's',
        width: 12,
        queries: [{ expr: quantile(0.95, 'gateway_overhead_seconds', 'stage'), legend: '{{stage}}' }],
      },
    ],
  },
  {
    title: 'Speed of models',
    panels: [
      {
        title: 'Time to first token, p95 by model',
        description:
          'From sending a streamed request to its provider to the first content, without the time of the gateway. The ten slowest; models and providers without series of their own are other.',
        unit: 's',
        width: 12,
        queries: [
          {
            expr: `topk(10, ${quantile(0.95, 'gateway_model_time_to_first_token_seconds', 'model, provider')})`,
            legend: '{{model}} at {{provider}}',
          },
        ],
      },
      {
        title: 'Output speed by model',
        description:
          'Output tokens per second of one answer, the mean. The ten slowest; replies that are too short to be measured do not count.',
        unit: 'short',
        width: 12,
        queries: [
          {
            expr: `bottomk(10, ${sumRate('gateway_model_time_per_output_token_seconds_count', 'model, provider')} / ${sumRate('gateway_model_time_per_output_token_seconds_sum', 'model, provider')})`,
            legend: '{{model}} at {{provider}}',
          },
        ],
      },
    ],
  },
  {
    title: 'Streams',
    panels: [
      {
        title: 'Open streams',
        description: 'Event streams that are being sent now.',
        unit: 'short',
        queries: [{ expr: `sum by (instance) (${of('gateway_open_streams')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Open WebSockets',
        description: 'WebSockets of clients, idle ones included.',
        unit: 'short',
        queries: [{ expr: `sum by (instance) (${of('gateway_open_websockets')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Bytes that wait for readers',
        description: 'Of answers whose readers do not take them; each API key has a share.',
        unit: 'bytes',
        queries: [{ expr: `sum by (instance) (${of('gateway_unread_bytes')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Stream events sent',
        description: 'Events per second, counted when their stream ends.',
        unit: 'ops',
        queries: [{ expr: sumRate('gateway_stream_chunks_total'), legend: 'events' }],
      },
      {
        title: 'Stream bytes sent',
        description: 'Bytes per second, counted when their stream ends.',
        unit: 'Bps',
        queries: [{ expr: sumRate('gateway_stream_bytes_total'), legend: 'bytes' }],
      },
      {
        title: 'Resumable streams',
        description: 'Streams that can be read again: those that run, and those that ended lately.',
        unit: 'short',
        queries: [{ expr: `sum by (instance) (${of('gateway_resumable_streams')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Memory of resumable streams',
        description: 'Bytes that these streams take in memory.',
        unit: 'bytes',
        queries: [{ expr: `sum by (instance) (${of('gateway_resumable_bytes')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Streams read again',
        description: 'Readers per second that came back to a resumable stream, by how they ended.',
        unit: 'ops',
        queries: [{ expr: sumRate('gateway_resumes_total', 'outcome'), legend: '{{outcome}}' }],
      },
      {
        title: 'Agents in a circle',
        description:
          'Requests per second of conversations that repeat themselves, by how, and by what their policy does.',
        unit: 'ops',
        queries: [{ expr: sumRate('gateway_loops_total', 'kind, action'), legend: '{{kind}} {{action}}' }],
      },
      {
        title: 'Answers given again',
        description:
          'Retries per second that got the answer of an earlier request with their idempotency key.',
        unit: 'ops',
        queries: [{ expr: sumRate('gateway_replays_total', 'outcome'), legend: '{{outcome}}' }],
      },
      {
        title: 'Response cache',
        description:
          'Requests per second that may use the response cache: hits and shared runs cost nothing, misses ran.',
        unit: 'ops',
        queries: [{ expr: sumRate('gateway_response_cache_total', 'outcome'), legend: '{{outcome}}' }],
      },
    ],
  },
  {
    title: 'Tokens and usage records',
    panels: [
      {
        title: 'Output tokens, top ten models',
        description:
          'Output tokens per second. Models beyond the first 200 of the catalogue are counted as other.',
        unit: 'short',
        stacked: true,
        queries: [
          {
            expr: `topk(10, ${sumRate('gateway_tokens_total', 'model', 'direction="output"')})`,
            legend: '{{model}}',
          },
        ],
      },
      {
        title: 'Prompts and caches',
        description:
          'Tokens of prompts per second at endpoints that have a price for reading from a cache: read from it, written to it, or neither. Agents read most of what they send again.',
        unit: 'short',
        stacked: true,
        queries: [{ expr: sumRate('gateway_prompt_cache_tokens_total', 'kind'), legend: '{{kind}}' }],
      },
      {
        title: 'Prompts that missed a cache',
        description:
          'Calls per second of conversations that read less of their prompt from a cache than the call before, by reason. A client that changes its tools or its system prompt from turn to turn pays its whole conversation again.',
        unit: 'ops',
        stacked: true,
        queries: [{ expr: sumRate('gateway_prompt_cache_misses_total', 'reason'), legend: '{{reason}}' }],
      },
      {
        title: 'Cost by workspace, top ten',
        description:
          'USD per hour as charged. Only with metrics.byWorkspace; workspaces beyond the first 50 are counted as other.',
        unit: 'currencyUSD',
        stacked: true,
        queries: [
          {
            expr: `topk(10, 3600 * ${sumRate('gateway_workspace_cost_usd_total', 'workspace')})`,
            legend: '{{workspace}}',
          },
        ],
      },
      {
        title: 'Tokens by workspace, top ten',
        description: 'Tokens per second, read and written. Only with metrics.byWorkspace.',
        unit: 'short',
        stacked: true,
        queries: [
          {
            expr: `topk(10, ${sumRate('gateway_workspace_tokens_total', 'workspace')})`,
            legend: '{{workspace}}',
          },
        ],
      },
      {
        title: 'Failed requests by workspace',
        description: 'Requests per second that failed. Only with metrics.byWorkspace.',
        unit: 'reqps',
        queries: [
          {
            expr: `topk(10, ${sumRate('gateway_workspace_requests_total', 'workspace', 'outcome="failed"')})`,
            legend: '{{workspace}}',
          },
        ],
      },
      {
        title: 'Cost by API key, top ten',
        description:
          'USD per hour as charged. Only with metrics.byKey; keys beyond the first 50 are counted as other.',
        unit: 'currencyUSD',
        stacked: true,
        queries: [
          { expr: `topk(10, 3600 * ${sumRate('gateway_key_cost_usd_total', 'key')})`, legend: '{{key}}' },
        ],
      },
      {
        title: 'Tokens by API key, top ten',
        description: 'Tokens per second, read and written. Only with metrics.byKey.',
        unit: 'short',
        stacked: true,
        queries: [{ expr: `topk(10, ${sumRate('gateway_key_tokens_total', 'key')})`, legend: '{{key}}' }],
      },
      {
        title: 'Failed requests by API key',
        description: 'Requests per second that failed. Only with metrics.byKey.',
        unit: 'reqps',
        queries: [
          {
            expr: `topk(10, ${sumRate('gateway_key_requests_total', 'key', 'outcome="failed"')})`,
            legend: '{{key}}',
          },
        ],
      },
      {
        title: 'Usage records',
        description:
          'Usage records per second by how the usage is known: told by the provider (exact), estimated because it was not, or none.',
        unit: 'ops',
        width: 24,
        stacked: true,
        queries: [{ expr: sumRate('gateway_usage_records_total', 'accounting'), legend: '{{accounting}}' }],
      },
      {
        title: 'Explanations',
        description:
          'Explanations of requests that were not plain, per second. Dropped ones are above the rate of their key, organization or address: somebody sends many requests that are refused.',
        unit: 'ops',
        width: 24,
        queries: [{ expr: sumRate('gateway_explanations_total', 'outcome'), legend: '{{outcome}}' }],
      },
      {
        title: 'Implausible usage reports',
        description:
          'Replies per second with implausible usage, for which corrected usage was charged. The log names the model.',
        unit: 'ops',
        width: 12,
        queries: [{ expr: sumRate('gateway_usage_implausible_total', 'provider'), legend: '{{provider}}' }],
      },
      {
        title: 'Unknown finish reasons',
        description:
          'Replies per second whose finish reason the gateway does not know. They count as finished; the answer has the reason as `native_finish_reason`.',
        unit: 'ops',
        width: 12,
        queries: [{ expr: sumRate('gateway_unknown_finishes_total', 'format'), legend: '{{format}}' }],
      },
    ],
  },
  {
    title: 'Guardrails',
    panels: [
      {
        title: 'Guardrail decisions by action',
        description:
          'Decisions per second. Unchecked ones could not be evaluated in time: look at the tasks, and add task threads.',
        unit: 'ops',
        stacked: true,
        queries: [{ expr: sumRate('gateway_guardrail_decisions_total', 'action'), legend: '{{action}}' }],
      },
      {
        title: 'Guardrail decisions by detector',
        description: 'What the rules found, per second; custom are all patterns of users together.',
        unit: 'ops',
        queries: [
          {
            expr: sumRate('gateway_guardrail_decisions_total', 'guardrail, action'),
            legend: '{{guardrail}} {{action}}',
          },
        ],
      },
      {
        title: 'Guardrail latency, p99',
        description: 'From a valid request to the verdict on it; only callers with guardrails.',
        unit: 's',
        queries: [
          { expr: quantile(0.99, 'gateway_overhead_seconds', '', 'stage="guard"'), legend: 'requests' },
        ],
      },
    ],
  },
  {
    title: 'Plugins',
    panels: [
      {
        title: 'Alignment outcomes',
        description:
          'Messages per second that the alignment plugin had judged, by mode and outcome. Enforced ones that are unavailable were refused with 503: look at the evaluator.',
        unit: 'ops',
        stacked: true,
        queries: [
          {
            expr: sumRate('gateway_alignment_outcomes_total', 'mode, outcome'),
            legend: '{{mode}} {{outcome}}',
          },
        ],
      },
      {
        title: 'Alignment latency, mean',
        description: 'What a judged exchange waited for its evaluator, on average.',
        unit: 's',
        queries: [
          {
            expr: `${sumRate('gateway_overhead_seconds_sum', '', 'stage="judge"')} / ${sumRate('gateway_overhead_seconds_count', '', 'stage="judge"')}`,
            legend: 'average',
          },
        ],
      },
      {
        title: 'Plugin time, p99',
        description:
          'How long each plugin worked on an exchange, with the models and engines that it asked. Only exchanges in which it had something to do.',
        unit: 's',
        queries: [{ expr: quantile(0.99, 'gateway_plugin_seconds', 'plugin'), legend: '{{plugin}}' }],
      },
    ],
  },
  {
    title: 'Server tools',
    panels: [
      {
        title: 'Tool calls by tool and outcome',
        description:
          'Calls of models per second. Refused: the tool told the model of a failure; failed: a fault of the gateway, with a line in the log.',
        unit: 'ops',
        stacked: true,
        queries: [
          {
            expr: sumRate('gateway_server_tool_calls_total', 'tool, outcome'),
            legend: '{{tool}} {{outcome}}',
          },
        ],
      },
      {
        title: 'Tool call duration, p99',
        description: 'How long a call of each tool takes.',
        unit: 's',
        queries: [{ expr: quantile(0.99, 'gateway_server_tool_seconds', 'tool'), legend: '{{tool}}' }],
      },
    ],
  },
]
