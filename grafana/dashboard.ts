/**
 * The dashboard as a table of panels; `npx node grafana/dashboard.ts` writes sluice.json from it. A test holds the
 * two equal, and every query to the metrics the gateway declares.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

interface Query {
  readonly expr: string
  /** Name of each line, with `{{label}}` for a label. */
  readonly legend: string
}

interface Panel {
  readonly title: string
  /** What it shows, and what to make of it. */
  readonly description: string
  /** Grafana's name of the unit. */
  readonly unit: string
  readonly queries: readonly Query[]
  readonly kind?: 'timeseries' | 'stat'
  /** Lines lie on top of each other and add up. */
  readonly stacked?: boolean
  /** Columns of 24; default 8. */
  readonly width?: number
  /** From this value on it is shown red. */
  readonly alarm?: number
}

interface Row {
  readonly title: string
  readonly panels: readonly Panel[]
}

/** A selector that follows the instance variable; `matchers` are further ones. */
const of = (metric: string, matchers = ''): string =>
  `${metric}{instance=~"$instance"${matchers === '' ? '' : `,${matchers}`}}`
const rate = (metric: string, matchers = ''): string => `rate(${of(metric, matchers)}[$__rate_interval])`
const sumRate = (metric: string, by = '', matchers = ''): string =>
  `sum${by === '' ? '' : ` by (${by}) `}(${rate(metric, matchers)})`
const quantile = (q: number, histogram: string, by = '', matchers = ''): string =>
  `histogram_quantile(${q}, ${sumRate(`${histogram}_bucket`, by === '' ? 'le' : `${by}, le`, matchers)})`
/** Part of the whole, 0 where the part was never seen. */
const share = (part: string, whole: string): string => `(${part} or vector(0)) / ${whole}`

const quantiles = (histogram: string): Query[] =>
  [0.5, 0.95, 0.99].map(q => ({ expr: quantile(q, histogram), legend: `p${q * 100}` }))

/** Requests whose client waits: those of batches are tried again, and their failures are no outage. */
const LIVE = 'route!~"batch/responses|batch/chat/completions|batch/messages|batch/embeddings"'

/** Stages in which the gateway itself is at work; in the others it waits for a provider or the client. */
const OWN_STAGES = 'parse|auth|guard|route|admit|encode|flush'

export const ROWS: readonly Row[] = [
  {
    title: 'Traffic',
    panels: [
      {
        title: 'Requests by outcome',
        description:
          'Finished requests per second. Failed ones are the gateway’s or a provider’s doing, refused ones the client’s; aborted means that the client left first.',
        unit: 'reqps',
        stacked: true,
        queries: [{ expr: sumRate('gateway_requests_total', 'outcome'), legend: '{{outcome}}' }],
      },
      {
        title: 'Requests by route',
        description: 'Finished requests per second. Paths that match no route are counted as other.',
        unit: 'reqps',
        stacked: true,
        queries: [{ expr: sumRate('gateway_requests_total', 'route'), legend: '{{route}}' }],
      },
      {
        title: 'Turned away',
        description:
          'Requests per second that were refused before they were read, by limit. If in_flight, lag or buffered (503, an overloaded thread) stay above zero, add threads or instances. key_open and key_bytes (429): a key exceeded its own limit.',
        unit: 'reqps',
        queries: [{ expr: sumRate('gateway_shed_total', 'reason'), legend: '{{reason}}' }],
      },
      {
        title: 'Connections refused',
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
        title: 'Failed share of requests',
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
        title: 'Aborted and refused shares',
        description:
          'Clients that left before the end, and requests that were refused, of all finished ones. A jump of aborted ones often means that something before or behind the gateway became slow.',
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
        title: 'Time to first token',
        description: 'From the request line to the first content handed to the client.',
        unit: 's',
        queries: quantiles('gateway_time_to_first_token_seconds'),
      },
      {
        title: 'Request duration, p95 by route',
        description: 'From the request line to the last byte of the answer, streams included.',
        unit: 's',
        queries: [{ expr: quantile(0.95, 'gateway_request_duration_seconds', 'route'), legend: '{{route}}' }],
      },
      {
        title: 'Added by the gateway, mean',
        description:
          'Mean time per exchange in the stages in which the gateway itself is at work: parse, auth, guard, route, admit, encode and flush.',
        unit: 's',
        queries: [
          {
            expr: `${sumRate('gateway_overhead_seconds_sum', '', `stage=~"${OWN_STAGES}"`)} / ${sumRate('gateway_overhead_seconds_count', '', 'stage="parse"')}`,
            legend: 'mean',
          },
        ],
      },
      {
        title: 'Stages, p95',
        description:
          'Each stage for itself; quantiles of stages do not add up. Upload is the client’s time, upstream_first_byte, first_token and stream are the provider’s, tools is that of server tools.',
        unit: 's',
        width: 12,
        queries: [{ expr: quantile(0.95, 'gateway_overhead_seconds', 'stage'), legend: '{{stage}}' }],
      },
      {
        title: 'Where the time of an exchange goes',
        description: 'Mean seconds per exchange in each stage; together they are its mean duration.',
        unit: 's',
        width: 12,
        stacked: true,
        queries: [
          {
            expr: `${sumRate('gateway_overhead_seconds_sum', 'stage')} / on() group_left() ${sumRate('gateway_overhead_seconds_count', '', 'stage="parse"')}`,
            legend: '{{stage}}',
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
        title: 'Events sent',
        description: 'Events per second, counted when their stream ends.',
        unit: 'ops',
        queries: [{ expr: sumRate('gateway_stream_chunks_total'), legend: 'events' }],
      },
      {
        title: 'Bytes sent in streams',
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
        description: 'Memory of streams that can be read again: those that run, and those that ended lately.',
        unit: 'bytes',
        queries: [{ expr: `sum by (instance) (${of('gateway_resumable_bytes')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Streams read again',
        description: 'Readers per second that came back to a resumable stream, by how they ended.',
        unit: 'ops',
        queries: [{ expr: sumRate('gateway_resumes_total', 'outcome'), legend: '{{outcome}}' }],
      },
    ],
  },
  {
    title: 'Tokens and cost',
    panels: [
      {
        title: 'Tokens',
        description: 'Tokens per second that models read (input) and wrote (output).',
        unit: 'short',
        queries: [{ expr: sumRate('gateway_tokens_total', 'direction'), legend: '{{direction}}' }],
      },
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
        title: 'Cost per hour, top ten models',
        description: 'USD per hour at the prices of the catalogue, at the present rate.',
        unit: 'currencyUSD',
        stacked: true,
        queries: [
          { expr: `topk(10, 3600 * ${sumRate('gateway_cost_usd_total', 'model')})`, legend: '{{model}}' },
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
        title: 'Implausible usage',
        description:
          'Replies per second with implausible usage, for which a corrected usage was charged. The log names the model.',
        unit: 'ops',
        width: 24,
        queries: [{ expr: sumRate('gateway_usage_implausible_total', 'provider'), legend: '{{provider}}' }],
      },
    ],
  },
  {
    title: 'Alignment',
    panels: [
      {
        title: 'Judged messages',
        description:
          'Messages per second that the alignment plugin had judged, by mode and outcome. Enforced ones that are unavailable were refused with 503: look at the evaluator.',
        unit: 'ops',
        width: 12,
        stacked: true,
        queries: [
          {
            expr: sumRate('gateway_alignment_outcomes_total', 'mode, outcome'),
            legend: '{{mode}} {{outcome}}',
          },
        ],
      },
      {
        title: 'Time to a verdict',
        description: 'What a judged exchange waited for its evaluator, on average.',
        unit: 's',
        width: 12,
        queries: [
          {
            expr: `${sumRate('gateway_overhead_seconds_sum', '', 'stage="judge"')} / ${sumRate('gateway_overhead_seconds_count', '', 'stage="judge"')}`,
            legend: 'average',
          },
        ],
      },
    ],
  },
  {
    title: 'Upstream health',
    panels: [
      {
        title: 'Attempts by provider',
        description: 'Attempts per second. One request may need several.',
        unit: 'reqps',
        stacked: true,
        queries: [{ expr: sumRate('gateway_upstream_requests_total', 'provider'), legend: '{{provider}}' }],
      },
      {
        title: 'Failed attempts by outcome',
        description:
          'Attempts per second that did not end well, by provider and error code; not those whose client left.',
        unit: 'reqps',
        queries: [
          {
            expr: sumRate(
              'gateway_upstream_requests_total',
              'provider, outcome',
              'outcome!~"ok|client_closed"',
            ),
            legend: '{{provider}} {{outcome}}',
          },
        ],
      },
      {
        title: 'Requests sent twice',
        description:
          'Requests per second that were sent a second time, because the provider closed the kept connection as they arrived. If this lasts, the provider closes idle connections earlier than it says.',
        unit: 'reqps',
        queries: [{ expr: sumRate('gateway_upstream_replays_total'), legend: 'replays' }],
      },
      {
        title: 'Response headers, p95 by provider',
        description: 'From sending a request to a provider to its response headers.',
        unit: 's',
        queries: [
          { expr: quantile(0.95, 'gateway_upstream_latency_seconds', 'provider'), legend: '{{provider}}' },
        ],
      },
    ],
  },
  {
    title: 'Choice of endpoints',
    panels: [
      {
        title: 'Endpoints that are not asked',
        description:
          'Endpoints and own keys whose breaker is open because of failures or rate limits, or whose provider asked to wait.',
        unit: 'short',
        queries: [{ expr: 'sum by (reason) (gateway_endpoints_blocked)', legend: '{{reason}}' }],
      },
      {
        title: 'Breakers',
        description: 'Changes per second. A provider that opens and closes all the time works half.',
        unit: 'ops',
        queries: [
          {
            expr: sumRate('gateway_breaker_changes_total', 'provider, change'),
            legend: '{{provider}} {{change}}',
          },
        ],
      },
      {
        title: 'First choices',
        description: 'Requests per second by the provider that is asked first and why.',
        unit: 'reqps',
        stacked: true,
        queries: [
          {
            expr: sumRate('gateway_endpoint_choices_total', 'provider, reason'),
            legend: '{{provider}} {{reason}}',
          },
        ],
      },
      {
        title: 'Second attempts',
        description:
          'Per second. Those over budget were left out, and their callers got the failure of the first attempt.',
        unit: 'reqps',
        queries: [{ expr: sumRate('gateway_retries_total', 'outcome'), legend: '{{outcome}}' }],
      },
      {
        title: 'Hedges',
        description:
          'Second endpoints that were asked beside a silent first one, per second. Many that lose cost money at the providers: raise routing.hedgeAfterMs.',
        unit: 'reqps',
        queries: [{ expr: sumRate('gateway_hedges_total', 'outcome'), legend: '{{outcome}}' }],
      },
      {
        title: 'Faulty tool calls by provider',
        description:
          'Replies per second whose tool calls had arguments that are no JSON, or a name that nobody declared.',
        unit: 'reqps',
        queries: [
          {
            expr: sumRate('gateway_tool_call_faults_total', 'provider, fault'),
            legend: '{{provider}} {{fault}}',
          },
        ],
      },
    ],
  },
  {
    title: 'Guardrails',
    panels: [
      {
        title: 'Decisions by action',
        description:
          'Decisions per second. Unchecked ones could not be evaluated in time: look at the tasks, and add task threads.',
        unit: 'ops',
        stacked: true,
        queries: [{ expr: sumRate('gateway_guardrail_decisions_total', 'action'), legend: '{{action}}' }],
      },
      {
        title: 'Decisions by detector',
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
        title: 'Time of guardrails, p99',
        description: 'From a valid request to the verdict on it; only callers with guardrails.',
        unit: 's',
        queries: [
          { expr: quantile(0.99, 'gateway_overhead_seconds', '', 'stage="guard"'), legend: 'requests' },
        ],
      },
    ],
  },
  {
    title: 'Server tools',
    panels: [
      {
        title: 'Calls by tool and outcome',
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
        title: 'Time of calls, p99',
        description: 'How long a call of each tool takes.',
        unit: 's',
        queries: [{ expr: quantile(0.99, 'gateway_server_tool_seconds', 'tool'), legend: '{{tool}}' }],
      },
    ],
  },
  {
    title: 'Provider keys of customers',
    panels: [
      {
        title: 'Keys asked for',
        description:
          'Own provider keys per second that were in memory (hit) or had to be opened (miss). Misses that do not fall after a start mean that the cache is too small.',
        unit: 'ops',
        stacked: true,
        queries: [
          { expr: sumRate('gateway_credential_cache_hits_total'), legend: 'hit' },
          { expr: sumRate('gateway_credential_cache_misses_total'), legend: 'miss' },
        ],
      },
      {
        title: 'Keys that left memory',
        description:
          'Per second, by why. Capacity means that others needed the room, forgotten that the key was changed or removed.',
        unit: 'ops',
        stacked: true,
        queries: [
          { expr: sumRate('gateway_credential_cache_evictions_total', 'reason'), legend: '{{reason}}' },
        ],
      },
      {
        title: 'Age of keys that left memory',
        description: 'How long they were kept. None is kept for more than five minutes and ten seconds.',
        unit: 's',
        queries: quantiles('gateway_credential_cache_age_seconds'),
      },
      {
        title: 'Keys in memory',
        description: 'Opened provider keys, all serve threads of an instance together.',
        unit: 'short',
        queries: [
          {
            expr: `sum by (instance) (${of('gateway_credential_cache_entries')})`,
            legend: '{{instance}}',
          },
        ],
      },
      {
        title: 'Memory of keys',
        description:
          'Estimated memory of the opened provider keys, all serve threads of an instance together.',
        unit: 'bytes',
        queries: [
          { expr: `sum by (instance) (${of('gateway_credential_cache_bytes')})`, legend: '{{instance}}' },
        ],
      },
      {
        title: 'Stored keys by master key',
        description:
          'Credentials in the database by the master key that wraps them. During a rotation they move to the first key; other means that an instance lacks a master key.',
        unit: 'short',
        stacked: true,
        queries: [{ expr: `max by (key_id) (${of('gateway_credentials')})`, legend: '{{key_id}}' }],
      },
    ],
  },
  {
    title: 'Batches',
    panels: [
      {
        title: 'Batches by state',
        description:
          'Batches in the database, all instances together. Validating or cancelling ones that stay for minutes: look at the log of the batch threads.',
        unit: 'short',
        queries: [{ expr: `max by (status) (${of('gateway_batches')})`, legend: '{{status}}' }],
      },
      {
        title: 'Requests of batches by outcome',
        description: 'Results per second that were stored.',
        unit: 'reqps',
        stacked: true,
        queries: [
          { expr: sumRate('gateway_batch_items_total', 'outcome'), legend: '{{outcome}}' },
          { expr: sumRate('gateway_batch_service_jobs_total', 'outcome'), legend: 'jobs {{outcome}}' },
        ],
      },
      {
        title: 'Requests of batches that run',
        description:
          'Requests of batches in flight. Far below batches.concurrency while batches are open: the provider takes no more, or serve threads are late.',
        unit: 'short',
        queries: [
          {
            expr: `sum by (instance) (${of('gateway_requests_in_flight', 'thread="batch-0"')})`,
            legend: '{{instance}}',
          },
        ],
      },
    ],
  },
  {
    title: 'Tasks of worker threads',
    panels: [
      {
        title: 'Tasks that wait',
        description: 'Tasks that no worker has taken yet. Evaluation that waits delays requests.',
        unit: 'short',
        queries: [
          {
            expr: `sum by (instance, pool) (${of('gateway_task_queue_depth')})`,
            legend: '{{instance}} {{pool}}',
          },
        ],
      },
      {
        title: 'Wait of tasks, p99 by pool',
        description: 'From asking for a task to its outcome, without its run.',
        unit: 's',
        queries: [{ expr: quantile(0.99, 'gateway_task_wait_seconds', 'pool'), legend: '{{pool}}' }],
      },
      {
        title: 'Run of tasks, p99 by task',
        description: 'What a task takes in its worker, once it is its turn.',
        unit: 's',
        queries: [{ expr: quantile(0.99, 'gateway_task_run_seconds', 'task'), legend: '{{task}}' }],
      },
      {
        title: 'Tasks by outcome',
        description:
          'Tasks per second by what became of them. Overloaded ones ask for more task threads, crashed ones for a look at what was sent.',
        unit: 'ops',
        stacked: true,
        queries: [
          { expr: sumRate('gateway_task_outcomes_total', 'task, outcome'), legend: '{{task}} {{outcome}}' },
        ],
      },
    ],
  },
  {
    title: 'Threads and process',
    panels: [
      {
        title: 'Event loop lag',
        description:
          'How late the event loop of each serve thread is. Above some 50 ms every stream feels it.',
        unit: 's',
        alarm: 0.05,
        queries: [{ expr: of('gateway_event_loop_lag_seconds'), legend: '{{instance}} {{thread}}' }],
      },
      {
        title: 'Requests in flight',
        description: 'Requests that each serve thread is working on now, open streams included.',
        unit: 'short',
        queries: [{ expr: of('gateway_requests_in_flight'), legend: '{{instance}} {{thread}}' }],
      },
      {
        title: 'Processor',
        description: 'Processors in use by the whole process; 1 is one of them busy all the time.',
        unit: 'short',
        queries: [{ expr: rate('process_cpu_seconds_total'), legend: '{{instance}}' }],
      },
      {
        title: 'Memory',
        description: 'Memory of the process in RAM, and the JavaScript heap of each serve thread.',
        unit: 'bytes',
        queries: [
          { expr: of('process_resident_memory_bytes'), legend: '{{instance}} resident' },
          { expr: of('gateway_heap_used_bytes'), legend: '{{instance}} {{thread}} heap' },
        ],
      },
      {
        title: 'File descriptors',
        description:
          'Share of the file descriptors that the process may open. At 100 % no connection can be accepted.',
        unit: 'percentunit',
        alarm: 0.8,
        queries: [{ expr: `${of('process_open_fds')} / ${of('process_max_fds')}`, legend: '{{instance}}' }],
      },
      {
        title: 'Threads',
        description:
          'Threads that answer (up), do not answer in time (silent), or await their restart (down).',
        unit: 'short',
        stacked: true,
        queries: [{ expr: `sum by (state) (${of('gateway_threads')})`, legend: '{{state}}' }],
      },
      {
        title: 'Limits without Redis',
        description: '1 while Redis does not answer an instance, and limits go on by its share.',
        unit: 'short',
        queries: [{ expr: `sum by (instance) (${of('gateway_quota_degraded')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Database reached',
        description: '1 while an instance can reach its database, 0 while it goes on from what it knows.',
        unit: 'short',
        queries: [{ expr: `min by (instance) (${of('gateway_storage_up')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Usage records in memory',
        description:
          'Usage records that wait in memory because the disk refuses them; beyond 1,000 a thread the oldest are lost.',
        unit: 'short',
        queries: [
          { expr: `sum by (instance) (${of('gateway_usage_records_waiting')})`, legend: '{{instance}}' },
        ],
      },
      {
        title: 'Usage records on disk',
        description: 'Usage records on disk that are not in the database yet.',
        unit: 'bytes',
        queries: [{ expr: `sum by (instance) (${of('gateway_usage_spool_bytes')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Thread restarts',
        description: 'Threads that died within the last hour and were started again.',
        unit: 'short',
        kind: 'stat',
        alarm: 1,
        queries: [{ expr: `sum(increase(${of('gateway_thread_restarts_total')}[1h]))`, legend: 'restarts' }],
      },
      {
        title: 'Uptime',
        description: 'Since the process started, the youngest instance.',
        unit: 's',
        kind: 'stat',
        queries: [{ expr: `time() - max(${of('process_start_time_seconds')})`, legend: 'uptime' }],
      },
      {
        title: 'Versions',
        description: 'Instances by the version they run.',
        unit: 'short',
        kind: 'stat',
        queries: [{ expr: `count by (version) (${of('gateway_build_info')})`, legend: '{{version}}' }],
      },
    ],
  },
]

const DATASOURCE = { type: 'prometheus', uid: '${datasource}' }
const COLUMNS = 24
const PANEL_HEIGHT = 8

/** The dashboard as Grafana 10 and later import it. */
export function dashboard(): unknown {
  const panels: unknown[] = []
  let y = 0
  for (const row of ROWS) {
    panels.push({
      id: panels.length + 1,
      type: 'row',
      title: row.title,
      collapsed: false,
      gridPos: { x: 0, y: y++, w: COLUMNS, h: 1 },
      panels: [],
    })
    let x = 0
    for (const panel of row.panels) {
      const w = panel.width ?? 8
      if (x + w > COLUMNS) {
        x = 0
        y += PANEL_HEIGHT
      }
      panels.push({ id: panels.length + 1, gridPos: { x, y, w, h: PANEL_HEIGHT }, ...drawn(panel) })
      x += w
    }
    y += PANEL_HEIGHT
  }
  return {
    uid: 'sluice',
    title: 'Sluice',
    description: 'Traffic, errors, latency by stage, streams, tokens and cost, providers, threads.',
    tags: ['sluice', 'gateway'],
    schemaVersion: 39,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: '30s',
    time: { from: 'now-1h', to: 'now' },
    timezone: 'browser',
    templating: {
      list: [
        { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus', current: {} },
        {
          name: 'instance',
          label: 'Instance',
          type: 'query',
          datasource: DATASOURCE,
          definition: 'label_values(gateway_build_info, instance)',
          query: { query: 'label_values(gateway_build_info, instance)', refId: 'instances' },
          refresh: 2,
          sort: 1,
          multi: true,
          includeAll: true,
          allValue: '.*',
          current: { selected: true, text: ['All'], value: ['$__all'] },
        },
      ],
    },
    annotations: { list: [] },
    links: [],
    panels,
  }
}

function drawn({ title, description, unit, queries, kind = 'timeseries', stacked, alarm }: Panel): object {
  const steps = [
    { color: 'green', value: null },
    ...(alarm === undefined ? [] : [{ color: 'red', value: alarm }]),
  ]
  const thresholds = { mode: 'absolute', steps }
  return {
    type: kind,
    title,
    description,
    datasource: DATASOURCE,
    targets: queries.map(({ expr, legend }, index) => ({
      refId: String.fromCharCode(65 + index),
      datasource: DATASOURCE,
      editorMode: 'code',
      expr,
      legendFormat: legend,
      range: kind === 'timeseries',
      instant: kind === 'stat',
    })),
    ...(kind === 'stat'
      ? {
          fieldConfig: { defaults: { unit, thresholds }, overrides: [] },
          options: { reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false }, textMode: 'auto' },
        }
      : {
          fieldConfig: {
            defaults: {
              unit,
              min: 0,
              thresholds,
              custom: {
                drawStyle: 'line',
                lineWidth: 1,
                fillOpacity: stacked === true ? 30 : 5,
                showPoints: 'never',
                spanNulls: false,
                stacking: { mode: stacked === true ? 'normal' : 'none', group: 'A' },
                thresholdsStyle: { mode: alarm === undefined ? 'off' : 'line' },
              },
            },
            overrides: [],
          },
          options: {
            legend: { displayMode: 'list', placement: 'bottom', showLegend: true },
            tooltip: { mode: 'multi', sort: 'desc' },
          },
        }),
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeFileSync(join(import.meta.dirname, 'sluice.json'), `${JSON.stringify(dashboard(), null, 2)}\n`)
}
