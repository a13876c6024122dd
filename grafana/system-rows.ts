/** Rows of the dashboard about what requests need: providers, credentials, batches, tasks, threads. Pure. */
import { of, quantile, quantiles, type Row, rate, sumRate } from './panel.ts'

export const SYSTEM_ROWS: readonly Row[] = [
  {
    title: 'Upstream providers',
    panels: [
      {
        title: 'Upstream attempts by provider',
        description: 'Attempts per second. One request may need several.',
        unit: 'reqps',
        stacked: true,
        queries: [{ expr: sumRate('gateway_upstream_requests_total', 'provider'), legend: '{{provider}}' }],
      },
      {
        title: 'Requests resent on stale connections',
        description:
          'Requests per second that were sent a second time, because the provider closed the kept connection as they arrived. If this lasts, the provider closes idle connections earlier than it says.',
        unit: 'reqps',
        queries: [{ expr: sumRate('gateway_upstream_replays_total'), legend: 'replays' }],
      },
      {
        title: 'Upstream time to headers, p95 by provider',
        description: 'From sending a request to a provider to its response headers.',
        unit: 's',
        queries: [
          { expr: quantile(0.95, 'gateway_upstream_latency_seconds', 'provider'), legend: '{{provider}}' },
        ],
      },
    ],
  },
  {
    title: 'Routing, retries and circuit breakers',
    panels: [
      {
        title: 'Blocked endpoints by reason',
        description:
          'Endpoints and own keys whose breaker is open because of failures or rate limits, or whose provider asked to wait.',
        unit: 'short',
        queries: [{ expr: 'sum by (reason) (gateway_endpoints_blocked)', legend: '{{reason}}' }],
      },
      {
        title: 'Circuit breaker changes',
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
        title: 'First-choice provider by reason',
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
        title: 'Retries by outcome',
        description:
          'Per second. Those over budget were left out, and their callers got the failure of the first attempt.',
        unit: 'reqps',
        queries: [{ expr: sumRate('gateway_retries_total', 'outcome'), legend: '{{outcome}}' }],
      },
      {
        title: 'Streams continued elsewhere',
        description:
          'Streams of text that broke and should go on at another endpoint, per second. no_endpoint: give more endpoints `continues`.',
        unit: 'reqps',
        queries: [{ expr: sumRate('gateway_stream_continuations_total', 'outcome'), legend: '{{outcome}}' }],
      },
      {
        title: 'Hedged requests by outcome',
        description:
          'Second endpoints that were asked beside a silent first one, per second. Many that lose cost money at the providers: raise routing.hedgeAfterMs.',
        unit: 'reqps',
        queries: [{ expr: sumRate('gateway_hedges_total', 'outcome'), legend: '{{outcome}}' }],
      },
      {
        title: 'Malformed tool calls by provider',
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
    title: 'BYOK credentials',
    panels: [
      {
        title: 'BYOK cache hits and misses',
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
        title: 'BYOK cache evictions by reason',
        description:
          'Per second, by why. Capacity means that others needed the room, forgotten that the key was changed or removed.',
        unit: 'ops',
        stacked: true,
        queries: [
          { expr: sumRate('gateway_credential_cache_evictions_total', 'reason'), legend: '{{reason}}' },
        ],
      },
      {
        title: 'BYOK credentials that do not open',
        description:
          'Requests per second that failed because a stored provider key cannot be opened. Damaged means that its row was changed, unknown_key that its master key is missing, invalid that it contains no key.',
        unit: 'ops',
        stacked: true,
        queries: [
          { expr: sumRate('gateway_credential_open_failures_total', 'reason'), legend: '{{reason}}' },
        ],
      },
      {
        title: 'Age of evicted BYOK credentials',
        description: 'How long they were kept. None is kept for more than five minutes and ten seconds.',
        unit: 's',
        queries: quantiles('gateway_credential_cache_age_seconds'),
      },
      {
        title: 'Cached BYOK credentials',
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
        title: 'BYOK cache size',
        description:
          'Estimated memory of the decrypted provider keys, all serve threads of an instance together.',
        unit: 'bytes',
        queries: [
          { expr: `sum by (instance) (${of('gateway_credential_cache_bytes')})`, legend: '{{instance}}' },
        ],
      },
      {
        title: 'Stored BYOK credentials by master key',
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
        title: 'Batch requests by outcome',
        description: 'Results per second that were stored.',
        unit: 'reqps',
        stacked: true,
        queries: [
          { expr: sumRate('gateway_batch_items_total', 'outcome'), legend: '{{outcome}}' },
          { expr: sumRate('gateway_batch_service_jobs_total', 'outcome'), legend: 'jobs {{outcome}}' },
        ],
      },
      {
        title: 'Batch requests in flight',
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
    title: 'Task queue',
    panels: [
      {
        title: 'Task queue depth',
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
        title: 'Task queue wait, p99 by pool',
        description: 'From asking for a task to its outcome, without its run.',
        unit: 's',
        queries: [{ expr: quantile(0.99, 'gateway_task_wait_seconds', 'pool'), legend: '{{pool}}' }],
      },
      {
        title: 'Task duration, p99 by task',
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
        title: 'Turns of the event loop',
        description:
          'The longest one in a hundred turns, by what most of it went into. During a turn all streams of the thread wait.',
        unit: 's',
        queries: [{ expr: quantile(0.99, 'gateway_loop_turn_seconds', 'cause'), legend: '{{cause}}' }],
      },
      {
        title: 'Requests in flight',
        description: 'Requests that each serve thread is working on now, open streams included.',
        unit: 'short',
        queries: [{ expr: of('gateway_requests_in_flight'), legend: '{{instance}} {{thread}}' }],
      },
      {
        title: 'CPU',
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
        title: 'Open file descriptors, share of the limit',
        description:
          'Share of the file descriptors that the process may open. At 100 % no connection can be accepted.',
        unit: 'percentunit',
        alarm: 0.8,
        queries: [{ expr: `${of('process_open_fds')} / ${of('process_max_fds')}`, legend: '{{instance}}' }],
      },
      {
        title: 'Threads by state',
        description:
          'Threads that answer (up), do not answer in time (silent), or await their restart (down).',
        unit: 'short',
        stacked: true,
        queries: [{ expr: `sum by (state) (${of('gateway_threads')})`, legend: '{{state}}' }],
      },
      {
        title: 'Rate limits without Redis',
        description: '1 while Redis does not answer an instance, and limits go on by its share.',
        unit: 'short',
        queries: [{ expr: `sum by (instance) (${of('gateway_quota_degraded')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Database reachable',
        description: '1 while an instance can reach its database, 0 while it goes on from what it knows.',
        unit: 'short',
        queries: [{ expr: `min by (instance) (${of('gateway_storage_up')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Time to read one key from the database',
        description: 'As the probe of every two seconds measures it; beyond 250 ms a ticket.',
        unit: 's',
        queries: [
          { expr: `max by (instance) (${of('gateway_storage_probe_seconds')})`, legend: '{{instance}}' },
        ],
      },
      {
        title: 'Degraded states',
        description: '1 while an instance does without its store, redis, or room on its disk.',
        unit: 'short',
        queries: [
          {
            expr: `sum by (instance, what) (${of('gateway_degraded')})`,
            legend: '{{instance}} {{what}}',
          },
        ],
      },
      {
        title: 'Buffered usage records',
        description:
          'Usage records that wait in memory because the disk refuses them; beyond 1,000 a thread the oldest are lost.',
        unit: 'short',
        queries: [
          { expr: `sum by (instance) (${of('gateway_usage_records_waiting')})`, legend: '{{instance}}' },
        ],
      },
      {
        title: 'Lag of exports',
        description: 'Since the oldest usage record that is not at the destination of an export.',
        unit: 's',
        queries: [
          { expr: `max by (instance) (${of('gateway_export_lag_seconds')})`, legend: '{{instance}}' },
        ],
      },
      {
        title: 'Bytes that wait for exports',
        description: 'Usage records on the disk, or in memory, that are not at the destination of an export.',
        unit: 'bytes',
        queries: [
          { expr: `sum by (instance) (${of('gateway_export_waiting_bytes')})`, legend: '{{instance}}' },
        ],
      },
      {
        title: 'Records lost to exports',
        description:
          "Usage records per second that were lost because an export's buffer was full. They are only in the database.",
        unit: 'ops',
        queries: [{ expr: sumRate('gateway_export_lost_records_total', 'instance'), legend: '{{instance}}' }],
      },
      {
        title: 'Drift from usage reports',
        description: "Difference between the ledger and the providers' usage reports of the last day.",
        unit: 'percentunit',
        queries: [
          { expr: `max by (provider) (${of('gateway_reconcile_drift_ratio')})`, legend: '{{provider}}' },
        ],
      },
      {
        title: 'Rollouts',
        description: "Share of a route's requests that go to the candidate of its rollout.",
        unit: 'percentunit',
        queries: [
          {
            expr: `max by (route, state) (${of('gateway_rollout_share_ratio')} * on (instance, route) group_right () ${of('gateway_rollout_state')})`,
            legend: '{{route}} {{state}}',
          },
        ],
      },
      {
        title: 'Shadows of rollouts',
        description:
          'Requests that were also sent to a candidate, and judgements of their answers, by outcome.',
        unit: 'ops',
        queries: [
          {
            expr: `sum by (outcome) (rate(${of('gateway_shadows_total')}[$__rate_interval]))`,
            legend: '{{outcome}}',
          },
        ],
      },
      {
        title: 'Budget of shadows',
        description: "Share of the budget of a rollout's shadows that is spent or reserved.",
        unit: 'percentunit',
        queries: [
          {
            expr: `max by (route) (${of('gateway_rollout_shadow_budget_used_ratio')})`,
            legend: '{{route}}',
          },
        ],
      },
      {
        title: 'Paused providers',
        description: '1 while an operator has taken the provider out of service; empty otherwise.',
        unit: 'short',
        queries: [{ expr: `max by (provider) (${of('gateway_provider_paused')})`, legend: '{{provider}}' }],
      },
      {
        title: 'Usage spool size',
        description: 'Usage records on disk that are not in the database yet.',
        unit: 'bytes',
        queries: [{ expr: `sum by (instance) (${of('gateway_usage_spool_bytes')})`, legend: '{{instance}}' }],
      },
      {
        title: 'Time to certificate expiry',
        description: 'Until the certificate of the public port expires; empty without TLS.',
        unit: 's',
        queries: [
          { expr: `${of('gateway_tls_certificate_expiry_seconds')} - time()`, legend: '{{instance}}' },
        ],
      },
      {
        title: 'Certificate reloads, last day',
        description: "Changes to the certificate's files: applied, or refused because the files are faulty.",
        unit: 'short',
        queries: [
          {
            expr: `sum by (outcome) (increase(${of('gateway_tls_reloads_total')}[1d]))`,
            legend: '{{outcome}}',
          },
        ],
      },
      {
        title: 'Refused configuration',
        description: '1 if the last reload of the configuration was refused: the previous one stays in use.',
        unit: 'short',
        alarm: 1,
        queries: [{ expr: `1 - ${of('gateway_config_last_reload_successful')}`, legend: '{{instance}}' }],
      },
      {
        title: 'Age of the configuration',
        description: 'Since a configuration without a fault was last loaded, at the start or by a reload.',
        unit: 's',
        queries: [
          {
            expr: `time() - ${of('gateway_config_last_reload_success_timestamp_seconds')}`,
            legend: '{{instance}}',
          },
        ],
      },
      {
        title: 'Spans of traces',
        description:
          'Spans of kept traces: accepted by the collector, refused by it, or dropped because it was away or too slow.',
        unit: 'ops',
        queries: [
          {
            expr: `sum by (outcome) (rate(${of('gateway_trace_spans_total')}[$__rate_interval]))`,
            legend: '{{outcome}}',
          },
        ],
      },
      {
        title: 'Thread restarts, last hour',
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
        title: 'Instances by version and front',
        description: 'Instances by the version they run, and by the HTTP front that serves.',
        unit: 'short',
        kind: 'stat',
        queries: [
          { expr: `count by (version) (${of('gateway_build_info')})`, legend: '{{version}}' },
          { expr: `count by (front) (${of('gateway_front')})`, legend: 'front {{front}}' },
        ],
      },
    ],
  },
]
