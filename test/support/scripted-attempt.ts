/** One attempt at a scripted provider: real decoder, answer and attempt, but no socket. */
import { systemClock } from '../../src/base/clock.ts'
import { toGatewayError } from '../../src/base/errors.ts'
import { createLog } from '../../src/base/log/log.ts'
import { createMetrics } from '../../src/base/metrics/metrics.ts'
import { Stopwatch } from '../../src/base/metrics/stages.ts'
import {
  type AttemptRecord,
  Exchange,
  type Held,
  type RequestContext,
  UNCOUNTED,
} from '../../src/exchange/exchange.ts'
import type { Format } from '../../src/formats/format.ts'
import { FORMATS } from '../../src/formats/table.ts'
import type { Meter } from '../../src/pipeline/accounting/allowance.ts'
import { Answer } from '../../src/pipeline/answer/answer.ts'
import { DebugNotes } from '../../src/pipeline/answer/debug.ts'
import { lessonsFor } from '../../src/pipeline/answer/relay-patterns.ts'
import { type Ending, echoRequest } from '../../src/pipeline/answer/response-object.ts'
import type { Sink } from '../../src/pipeline/answer/sink.ts'
import { AbandonedReplies } from '../../src/pipeline/turn/abandoned-replies.ts'
import { AnswerTarget } from '../../src/pipeline/turn/answer-target.ts'
import { Attempt, type AttemptDeps } from '../../src/pipeline/turn/attempt.ts'
import { ProviderRequests } from '../../src/pipeline/turn/provider-request.ts'
import { type Endpoint, type FormatName, type Quirk, textFormat } from '../../src/protocol/provider.ts'
import type {
  Transport,
  UpstreamCall,
  UpstreamHandler,
  UpstreamRequest,
} from '../../src/providers/upstream/transport.ts'
import { parseResponsesRequest } from './dialects.ts'

/** A client whose calls do nothing by themselves: the test plays the socket, through `handler`. */
export class ScriptedClient implements Transport {
  handler: UpstreamHandler | null = null
  pauses = 0
  aborted = false

  start(_request: unknown, handler: UpstreamHandler): UpstreamCall {
    this.handler = handler
    return {
      pause: () => {
        this.pauses++
      },
      resume: () => undefined,
      abort: () => {
        this.aborted = true
      },
    }
  }

  async close(): Promise<void> {
    // Nothing is open.
  }
}

export function scriptedEndpoint(format: FormatName, quirks: readonly Quirk[] = [], slug = 'acme'): Endpoint {
  return {
    modelId: 'acme/scripted',
    upstreamModel: 'scripted',
    provider: {
      slug,
      name: 'Acme',
      format,
      baseUrl: 'http://127.0.0.1:9/v1',
      auth: 'none',
      apiKey: null,
      quirks,
      headers: {},
      onAbort: 'cancel',
    },
    format,
    pricing: { prompt: 1, completion: 1, request: 0, inputCacheRead: null, inputCacheWrite: null },
    contextLength: null,
    maxOutputTokens: null,
    region: null,
    zdr: false,
    quantization: 'unknown',
    drawsImages: true,
    supportedParameters: null,
  }
}

/** The account of an attempt that was answered. */
export function scriptedRecord(more: Partial<AttemptRecord> = {}): AttemptRecord {
  return {
    endpoint: scriptedEndpoint('openai-chat'),
    credential: null,
    isByok: false,
    providerKey: null,
    upstreamId: null,
    status: 200,
    error: null,
    isRefused: false,
    isStarted: true,
    startedMs: 0,
    endedMs: 0,
    turn: 0,
    cost: 0,
    ...more,
  }
}

/** A request that nobody aborts. */
export function scriptedContext(more: Partial<RequestContext> = {}): RequestContext {
  return {
    id: 'gen-1-x',
    watch: new Stopwatch(0),
    held: UNCOUNTED,
    signal: new AbortController().signal,
    callerContext: null,
    trace: null,
    ...more,
  }
}

export function scriptedExchange(
  fields: Readonly<Record<string, unknown>> = {},
  held: Held = UNCOUNTED,
): Exchange {
  const request = parseResponsesRequest({
    model: 'acme/scripted',
    input: 'hi',
    stream: true,
    ...fields,
  })
  const asked = {
    context: scriptedContext({ held }),
    caller: { keyHash: 'k', organizationId: 'o', workspaceId: 'w', memberId: null, limit: null },
    request,
    dialect: 'responses' as const,
    withMetadata: false,
    dataRegion: null,
  }
  // The same second in each run, so that outcomes can be compared.
  return new Exchange(asked, 1)
}

interface ScriptedRun {
  readonly run: Attempt
  readonly client: ScriptedClient
  readonly handler: UpstreamHandler
  /** The account of the attempt. */
  readonly record: AttemptRecord
  /** The replies that are read on without their caller. */
  readonly abandoned: AbandonedReplies
  /** Settles after the terminal event was written, as the pipeline would write it. */
  readonly over: Promise<void>
}

const ENDING: Ending = { completedAt: 2, usage: null, serviceTier: null, metadata: null }

const log = createLog('silent', { write: () => undefined })
const metrics = createMetrics()

/** An attempt whose provider has answered with its head; its bytes are for the caller to send. */
export function startScripted(
  endpoint: Endpoint,
  sink: Sink,
  exchange: Exchange = scriptedExchange(),
  meter: Meter | null = null,
  format: Format = FORMATS[textFormat(endpoint)],
): ScriptedRun {
  const client = new ScriptedClient()
  const abandoned = new AbandonedReplies()
  const deps: AttemptDeps = {
    client,
    clock: systemClock,
    abandoned,
    log,
    metrics,
  }
  const requests = new ProviderRequests({
    timeouts: { upstreamHeadersMs: 1000, upstreamIdleMs: 1000 },
    hashEndUser: () => 'u',
    hashCacheKey: () => 'k',
  })
  const record = scriptedRecord({ endpoint, status: null })
  const { id, createdAt, request, prompt } = exchange
  const answer = new Answer(sink, echoRequest(request, { id, createdAt, model: '' }), exchange.held)
  answer.openTurn(false)
  const { relays } = answer
  const learn =
    relays === null || format.dialect === null || endpoint.provider.quirks.includes('no-relay')
      ? null
      : lessonsFor(format.dialect, relays)
  const debug = new DebugNotes(exchange)
  const run = new Attempt(deps, exchange, record, { format, body: null, debug: null, transport: null, meter })
  const target = new AnswerTarget({
    clock: systemClock,
    exchange: Object.assign(exchange, { debug }),
    answer,
    figures: run.figures,
    record,
    calls: null,
    fitted: null,
    learn,
  })
  answer.follow(run)
  const wire = requests.encode(exchange, record, format, prompt)
  if (request.debug?.echo_upstream_body === true) debug.bodies.push(wire.body)
  const asked = requests.address(record, wire, 0) as UpstreamRequest
  const over = run.run(asked, target).then(
    finish => answer.finish(finish.reason, { ...ENDING, serviceTier: finish.serviceTier }),
    thrown => {
      if (answer.committed) answer.fail(toGatewayError(thrown), ENDING)
      else throw thrown
    },
  )
  const { handler } = client
  if (handler === null) throw new Error('the attempt did not start its call')
  handler.onHead({ status: 200, headers: {} })
  return { run, client, handler, record, abandoned, over }
}
