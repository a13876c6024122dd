/**
 * The table of all thread metrics, one row each. Label values come from closed sets only: route templates, configured
 * providers and models, enumerations. A test keeps docs/metrics.md equal to the table. Leaf.
 */
import { getHeapStatistics } from 'node:v8'
import type { Declaration } from './declaration.ts'
import { STAGES } from './stages.ts'

/** Seconds. Fine at the low end for the gateway's own work; up to the ten minutes that a request may take. */
const DURATION_BUCKETS = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
]
/** Seconds. Stages of the gateway take microseconds; stages that wait for a provider or a reader take minutes. */
const STAGE_BUCKETS = [
  0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
  0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
]
/** Seconds; a key is cached for at most five minutes. */
const CREDENTIAL_AGE_BUCKETS = [1, 5, 15, 30, 60, 120, 180, 240, 300, 330]
/** Seconds. A short task takes microseconds; a document, seconds. */
const TASK_BUCKETS = [
  0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
  30, 60,
]

/** Seconds. A turn takes less than a millisecond; readers notice one of tens of milliseconds. */
const TURN_BUCKETS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1]

/** The largest part of a turn of the event loop. */
export const TURN_CAUSES = ['collector', 'starts_and_ends', 'other'] as const
export type TurnCause = (typeof TURN_CAUSES)[number]

/** Routes of model calls. Series of other routes start with their first request. */
const MODEL_ROUTES = ['/responses', '/chat/completions', '/messages', '/embeddings']
const STATUS_CLASSES = ['2xx', '4xx', '5xx']
const REQUEST_OUTCOMES = ['completed', 'refused', 'failed', 'aborted']
const QUEUE_OUTCOMES = ['started', 'refused', 'expired', 'left'] as const
export type QueueOutcome = (typeof QUEUE_OUTCOMES)[number]
const CONTINUATION_OUTCOMES = ['continued', 'failed', 'no_endpoint', 'impossible'] as const
/** The outcome of a second attempt after a failure. */
const RETRY_OUTCOMES = ['tried', 'over_budget']
const HEDGE_OUTCOMES = ['won', 'lost', 'failed', 'over_budget']
/** Changes of circuit breakers. */
const BREAKER_CHANGES = ['opened', 'limited', 'probed', 'closed'] as const
export type BreakerChange = (typeof BREAKER_CHANGES)[number]
/** The reason why an endpoint was tried first. */
export const ENDPOINT_CHOICES = [
  'only',
  'own_key',
  'pinned',
  'probe',
  'preference',
  'price',
  'order',
  'plugin',
] as const
export type EndpointChoice = (typeof ENDPOINT_CHOICES)[number]

/** Outcomes of shadows, and `judged` or `unjudged` for their answers. */
const SHADOW_OUTCOMES = [
  'answered',
  'failed',
  'unfit',
  'dropped',
  'over_budget',
  'judged',
  'unjudged',
] as const
export type ShadowOutcome = (typeof SHADOW_OUTCOMES)[number]

const ALIGNMENT_MODES = ['enforce', 'audit']
const ALIGNMENT_OUTCOMES = ['allowed', 'blocked', 'unavailable']
const SHED_REASONS = [
  'in_flight',
  'lag',
  'buffered',
  'key_open',
  'key_bytes',
  'key_held',
  'key_unread',
  'key_sockets',
]
const CONNECTION_REFUSALS = ['limit', 'address']
/** How reading a resumed stream ended. */
const RESUME_OUTCOMES = ['completed', 'left', 'cut', 'refused'] as const
export type ResumeOutcome = (typeof RESUME_OUTCOMES)[number]
/** Kinds of loops of an agent. */
const LOOP_KINDS = ['repeat', 'cycle', 'spend'] as const
export type LoopKind = (typeof LOOP_KINDS)[number]
const LOOP_ACTIONS = ['tell', 'stop']
const BATCH_LINE_OUTCOMES = ['completed', 'failed']
const CACHE_MISS_REASONS = ['tools', 'system', 'earlier_turn', 'endpoint', 'time', 'other']
const ACCOUNTINGS = ['exact', 'estimated', 'none', 'cached', 'lost']
const RESPONSE_CACHE_OUTCOMES = ['hit', 'shared', 'miss', 'refresh', 'unfit', 'alone']
const PROMPT_CACHE_KINDS = ['read', 'write', 'uncached']
const CALL_FAULTS = ['invalid_json', 'unknown_name'] as const
export type CallFault = (typeof CALL_FAULTS)[number]
/** Outcomes of the jobs of batch services. */
const SERVICE_JOB_OUTCOMES = ['submitted', 'ended', 'failed', 'refused', 'busy', 'lost', 'given_up'] as const
export type ServiceJobOutcome = (typeof SERVICE_JOB_OUTCOMES)[number]
/** The detectors, then labels of decisions without a detector. */
const GUARDRAILS = [
  'email',
  'phone',
  'ssn',
  'credit-card',
  'ip-address',
  'secrets',
  'person-name',
  'address',
  'regex-prompt-injection',
  'custom',
  'restriction',
  'all',
]
const SERVER_TOOLS = [
  'advisor',
  'apply_patch',
  'bash',
  'code_interpreter',
  'datetime',
  'experimental__search_models',
  'file_search',
  'files',
  'fusion',
  'image_generation',
  'mcp',
  'memory',
  'shell',
  'subagent',
  'text_editor',
  'tool_search',
  'web_fetch',
  'web_search',
]
const SERVER_TOOL_OUTCOMES = ['completed', 'refused', 'failed', 'timeout', 'malformed', 'left', 'over_budget']
const PLUGINS = [
  'alignment',
  'moderation',
  'context-compression',
  'response-healing',
  'file-parser',
  'web',
  'web-fetch',
  'fusion',
  'structured-output',
  'auto-router',
  'auto-beta-router',
  'pareto-router',
  'switchyard-router',
  'jev-router',
  'free',
  'bodybuilder',
]
const POOLS = ['evaluation', 'bulk']
const TASKS = [
  'judge-answer',
  'evaluate-texts',
  'repair-json',
  'check-schema',
  'pdf-text',
  'page-text',
  'hash-file',
  'check-batch',
  'store-batch',
  'index-file',
  'search-files',
  'check-batch-bodies',
]
const TASK_OUTCOMES = ['ok', 'overloaded', 'timeout', 'crashed', 'failed', 'cancelled']
/** Reasons why a credential cannot be decrypted: the reasons of a VaultError, or content that is not a key. */
const CREDENTIAL_OPEN_FAILURES = ['damaged', 'unknown_key', 'invalid'] as const
/** Reasons why a decrypted provider key leaves the cache. */
export const CREDENTIAL_EVICTIONS = ['capacity', 'expired', 'forgotten', 'replaced'] as const

/** Decisions of a guardrail, as the label `action` of `gateway_guardrail_decisions_total`. */
const GUARDRAIL_ACTIONS = [
  'blocked',
  'redacted',
  'masked',
  'flagged',
  'passed_unchecked',
  'refused_unchecked',
] as const
export type GuardrailAction = (typeof GUARDRAIL_ACTIONS)[number]

/** The metrics by their name in code. */
export const METRICS = {
  requests: {
    kind: 'counter',
    name: 'gateway_requests_total',
    help: 'Answered requests, by route template, by status class and by how they ended',
    labels: ['route', 'status_class', 'outcome'],
    fromZero: { route: MODEL_ROUTES, status_class: STATUS_CLASSES, outcome: REQUEST_OUTCOMES },
  },
  requestDuration: {
    kind: 'histogram',
    name: 'gateway_request_duration_seconds',
    help: 'From the request line to the last byte of the answer',
    labels: ['route'],
    buckets: DURATION_BUCKETS,
  },
  timeToFirstToken: {
    kind: 'histogram',
    name: 'gateway_time_to_first_token_seconds',
    help: 'From the request line to the first content handed to the client',
    labels: [],
    buckets: DURATION_BUCKETS,
  },
  overhead: {
    kind: 'histogram',
    name: 'gateway_overhead_seconds',
    help: 'Time of each stage of an exchange; the stages of one add up to its duration',
    labels: ['stage'],
    fromZero: { stage: STAGES },
    buckets: STAGE_BUCKETS,
  },
  upstreamReplays: {
    kind: 'counter',
    name: 'gateway_upstream_replays_total',
    help: 'Requests sent again because the provider closed the kept-alive connection just as they arrived',
    labels: [],
  },
  shed: {
    kind: 'counter',
    name: 'gateway_shed_total',
    help: 'Requests refused before they were read or worked on: with 503 because the thread was overloaded, with 429 because their key or its organization exceeded its share',
    labels: ['reason'],
    fromZero: { reason: SHED_REASONS },
  },
  queuedRequests: {
    kind: 'gauge',
    name: 'gateway_requests_queued',
    help: 'Requests that wait because their API key has reached its limit of open requests',
    labels: [],
  },
  queueWait: {
    kind: 'histogram',
    name: 'gateway_queue_wait_seconds',
    help: 'How long requests waited in the queue of their API key, by how the wait ended',
    labels: ['outcome'],
    fromZero: { outcome: QUEUE_OUTCOMES },
    buckets: DURATION_BUCKETS,
  },
  unreadBytes: {
    kind: 'gauge',
    name: 'gateway_unread_bytes',
    help: 'Bytes of answers that wait for their readers, and of WebSocket messages that are no requests yet',
    labels: [],
  },
  openSockets: {
    kind: 'gauge',
    name: 'gateway_open_websockets',
    help: 'Open WebSockets, idle ones included',
    labels: [],
  },
  openConnections: {
    kind: 'gauge',
    name: 'gateway_open_connections',
    help: 'Client connections, idle ones included',
    labels: [],
  },
  connectionsRefused: {
    kind: 'counter',
    name: 'gateway_connections_refused_total',
    help: 'Client connections that were closed immediately, by the limit that they exceeded',
    labels: ['reason'],
    fromZero: { reason: CONNECTION_REFUSALS },
  },
  openStreams: {
    kind: 'gauge',
    name: 'gateway_open_streams',
    help: 'Event streams that are being sent',
    labels: [],
  },
  resumes: {
    kind: 'counter',
    name: 'gateway_resumes_total',
    help: 'Readers of resumable streams that reconnected, by how they ended: at the end of the stream, left by the client, cut, or refused',
    labels: ['outcome'],
    fromZero: { outcome: RESUME_OUTCOMES },
  },
  replays: {
    kind: 'counter',
    name: 'gateway_replays_total',
    help: 'Requests with an idempotency key that got the answer of an earlier one, by how they ended: completely, left by the client, cut, or refused',
    labels: ['outcome'],
    fromZero: { outcome: RESUME_OUTCOMES },
  },
  responseCache: {
    kind: 'counter',
    name: 'gateway_response_cache_total',
    help: 'Requests that may use the response cache: answered from it (hit) or by a running request (shared), run because it had no answer (miss) or to replace the answer (refresh), not allowed to use it (unfit), or run alone because no answer could be read',
    labels: ['outcome'],
    fromZero: { outcome: RESPONSE_CACHE_OUTCOMES },
  },
  loops: {
    kind: 'counter',
    name: 'gateway_loops_total',
    help: 'Requests of conversations that run in a circle or spend too much, by kind of loop and by action of the policy',
    labels: ['kind', 'action'],
    fromZero: { kind: LOOP_KINDS, action: LOOP_ACTIONS },
  },
  streamChunks: {
    kind: 'counter',
    name: 'gateway_stream_chunks_total',
    help: 'Events written to event streams',
    labels: [],
  },
  streamBytes: {
    kind: 'counter',
    name: 'gateway_stream_bytes_total',
    help: 'Bytes written to event streams',
    labels: [],
  },
  tokens: {
    kind: 'counter',
    name: 'gateway_tokens_total',
    help: 'Tokens read and written by models',
    labels: ['direction', 'model'],
  },
  promptCacheTokens: {
    kind: 'counter',
    name: 'gateway_prompt_cache_tokens_total',
    help: 'Prompt tokens at endpoints with a price for cached tokens: read from the cache, written to it, or neither',
    labels: ['provider', 'model', 'kind'],
    fromZero: { kind: PROMPT_CACHE_KINDS },
  },
  promptCacheMisses: {
    kind: 'counter',
    name: 'gateway_prompt_cache_misses_total',
    help: 'Calls in conversations that read less of their prompt from a cache than the previous call, by reason',
    labels: ['reason'],
    fromZero: { reason: CACHE_MISS_REASONS },
  },
  cost: {
    kind: 'counter',
    name: 'gateway_cost_usd_total',
    help: 'Cost of answered requests in USD, at the prices in the catalogue',
    labels: ['model'],
  },
  alignmentOutcomes: {
    kind: 'counter',
    name: 'gateway_alignment_outcomes_total',
    help: 'Messages from models that the alignment plugin submitted for judgement, by mode and outcome',
    labels: ['mode', 'outcome'],
    fromZero: { mode: ALIGNMENT_MODES, outcome: ALIGNMENT_OUTCOMES },
  },
  usageRecords: {
    kind: 'counter',
    name: 'gateway_usage_records_total',
    help: 'Usage records, by how their token counts were obtained; `lost` records could not be written to disk and were dropped',
    labels: ['accounting'],
    fromZero: { accounting: ACCOUNTINGS },
  },
  usageImplausible: {
    kind: 'counter',
    name: 'gateway_usage_implausible_total',
    help: 'Replies with implausible usage, which were charged with corrected figures',
    labels: ['provider'],
  },
  shadows: {
    kind: 'counter',
    name: 'gateway_shadows_total',
    help: 'Requests that were also sent to the candidate of a route, or were to be, and judgements of their answers, by outcome',
    labels: ['outcome'],
    fromZero: { outcome: SHADOW_OUTCOMES },
  },
  explanations: {
    kind: 'counter',
    name: 'gateway_explanations_total',
    help: 'Explanations of requests other than plain ones; dropped ones exceeded the rate for their key',
    labels: ['outcome'],
    fromZero: { outcome: ['kept', 'dropped'] },
  },
  usageRecordsWaiting: {
    kind: 'gauge',
    name: 'gateway_usage_records_waiting',
    help: 'Usage records that wait in memory because they cannot be written to disk; beyond 1,000 per thread, the oldest are lost',
    labels: [],
  },
  upstreamRequests: {
    kind: 'counter',
    name: 'gateway_upstream_requests_total',
    help: 'Attempts to call providers, by how they ended',
    labels: ['provider', 'outcome'],
  },
  upstreamLatency: {
    kind: 'histogram',
    name: 'gateway_upstream_latency_seconds',
    help: 'From sending a request to a provider to its response headers',
    labels: ['provider'],
    buckets: DURATION_BUCKETS,
  },
  breakerChanges: {
    kind: 'counter',
    name: 'gateway_breaker_changes_total',
    help: 'Changes of circuit breakers for all keys: opened by failures (`opened`), opened by rate limits (`limited`), probed, or closed',
    labels: ['provider', 'change'],
    fromZero: { change: BREAKER_CHANGES },
  },
  endpointChoices: {
    kind: 'counter',
    name: 'gateway_endpoint_choices_total',
    help: 'Model calls, by the provider that is called first and the reason',
    labels: ['provider', 'reason'],
    fromZero: { reason: ENDPOINT_CHOICES },
  },
  unknownFinishes: {
    kind: 'counter',
    name: 'gateway_unknown_finishes_total',
    help: 'Replies with a finish reason that the gateway does not know; they count as finished',
    labels: ['format'],
  },
  retries: {
    kind: 'counter',
    name: 'gateway_retries_total',
    help: 'Second attempts after an endpoint failed: tried, or left out because the retry budget was used up',
    labels: ['outcome'],
    fromZero: { outcome: RETRY_OUTCOMES },
  },
  streamContinuations: {
    kind: 'counter',
    name: 'gateway_stream_continuations_total',
    help: 'Broken streams of text that another endpoint should continue: continued, failed there too, without such an endpoint, or impossible to continue',
    labels: ['outcome'],
    fromZero: { outcome: CONTINUATION_OUTCOMES },
  },
  toolCallFaults: {
    kind: 'counter',
    name: 'gateway_tool_call_faults_total',
    help: 'Tool calls that models made and the client cannot run: arguments that are not JSON, or an unknown name',
    labels: ['provider', 'fault'],
    fromZero: { fault: CALL_FAULTS },
  },
  hedges: {
    kind: 'counter',
    name: 'gateway_hedges_total',
    help: 'Second attempts made while the first one is silent: won, lost, failed, or left out because the retry budget was used up',
    labels: ['outcome'],
    fromZero: { outcome: HEDGE_OUTCOMES },
  },
  guardrailDecisions: {
    kind: 'counter',
    name: 'gateway_guardrail_decisions_total',
    help: 'Decisions of guardrails on requests and replies, by detector (or restriction, or all) and action',
    labels: ['guardrail', 'action'],
    fromZero: { guardrail: GUARDRAILS, action: GUARDRAIL_ACTIONS },
  },
  serverToolCalls: {
    kind: 'counter',
    name: 'gateway_server_tool_calls_total',
    help: 'Calls to server tools by models, by tool and outcome',
    labels: ['tool', 'outcome'],
    fromZero: { tool: [...SERVER_TOOLS, 'unknown'], outcome: SERVER_TOOL_OUTCOMES },
  },
  serverToolSeconds: {
    kind: 'histogram',
    name: 'gateway_server_tool_seconds',
    help: 'How long calls to server tools took, by tool',
    labels: ['tool'],
    fromZero: { tool: SERVER_TOOLS },
    buckets: TASK_BUCKETS,
  },
  pluginSeconds: {
    kind: 'histogram',
    name: 'gateway_plugin_seconds',
    help: 'How long plugins worked on exchanges in which they had something to do',
    labels: ['plugin'],
    fromZero: { plugin: PLUGINS },
    buckets: TASK_BUCKETS,
  },
  credentialEntries: {
    kind: 'gauge',
    name: 'gateway_credential_cache_entries',
    help: 'Decrypted provider keys in memory',
    labels: [],
  },
  credentialBytes: {
    kind: 'gauge',
    name: 'gateway_credential_cache_bytes',
    help: 'Estimated memory that the decrypted provider keys take',
    labels: [],
  },
  credentialHits: {
    kind: 'counter',
    name: 'gateway_credential_cache_hits_total',
    help: 'Provider keys that were in memory when they were needed',
    labels: [],
  },
  credentialMisses: {
    kind: 'counter',
    name: 'gateway_credential_cache_misses_total',
    help: 'Provider keys that were not in memory: the request decrypted the key, or waited for another request to decrypt it',
    labels: [],
  },
  credentialEvictions: {
    kind: 'counter',
    name: 'gateway_credential_cache_evictions_total',
    help: 'Decrypted provider keys that were removed from memory, by reason',
    labels: ['reason'],
    fromZero: { reason: CREDENTIAL_EVICTIONS },
  },
  credentialAge: {
    kind: 'histogram',
    name: 'gateway_credential_cache_age_seconds',
    help: 'How long a decrypted provider key had been in memory when it was removed',
    labels: [],
    buckets: CREDENTIAL_AGE_BUCKETS,
  },
  credentialOpenFailures: {
    kind: 'counter',
    name: 'gateway_credential_open_failures_total',
    help: 'Times that a stored provider key could not be opened, by reason; the request failed',
    labels: ['reason'],
    fromZero: { reason: CREDENTIAL_OPEN_FAILURES },
  },
  taskQueueDepth: {
    kind: 'gauge',
    name: 'gateway_task_queue_depth',
    help: 'Tasks that wait for a worker',
    labels: ['pool'],
    fromZero: { pool: POOLS },
  },
  taskWait: {
    kind: 'histogram',
    name: 'gateway_task_wait_seconds',
    help: 'From the request for a task to its outcome, not including its run time',
    labels: ['pool'],
    fromZero: { pool: POOLS },
    buckets: TASK_BUCKETS,
  },
  taskRun: {
    kind: 'histogram',
    name: 'gateway_task_run_seconds',
    help: 'Run time of a task in its worker',
    labels: ['task'],
    fromZero: { task: TASKS },
    buckets: TASK_BUCKETS,
  },
  taskOutcomes: {
    kind: 'counter',
    name: 'gateway_task_outcomes_total',
    help: 'Requested tasks, by outcome',
    labels: ['task', 'outcome'],
    fromZero: { task: TASKS, outcome: TASK_OUTCOMES },
  },
  eventLoopLag: {
    kind: 'gauge',
    name: 'gateway_event_loop_lag_seconds',
    help: "How far behind a thread's event loop has recently been",
    labels: ['thread'],
  },
  loopTurns: {
    kind: 'histogram',
    name: 'gateway_loop_turn_seconds',
    help: 'Turns of the event loop of serve threads, without waiting, by what most of the turn went into',
    labels: ['cause'],
    fromZero: { cause: TURN_CAUSES },
    buckets: TURN_BUCKETS,
  },
  inFlight: {
    kind: 'gauge',
    name: 'gateway_requests_in_flight',
    help: 'Requests that a thread is working on',
    labels: ['thread'],
  },
  batchLines: {
    kind: 'counter',
    name: 'gateway_batch_items_total',
    help: 'Batch requests whose results are stored, by outcome',
    labels: ['outcome'],
    fromZero: { outcome: BATCH_LINE_OUTCOMES },
  },
  serviceJobs: {
    kind: 'counter',
    name: 'gateway_batch_service_jobs_total',
    help: "Jobs at providers' batch services, by what happened to them",
    labels: ['provider', 'outcome'],
    fromZero: { outcome: SERVICE_JOB_OUTCOMES },
  },
  heapUsed: {
    kind: 'gauge',
    name: 'gateway_heap_used_bytes',
    help: "Bytes in use in a thread's JavaScript heap",
    labels: ['thread'],
    read: () => getHeapStatistics().used_heap_size,
  },
} as const satisfies Readonly<Record<string, Declaration>>
