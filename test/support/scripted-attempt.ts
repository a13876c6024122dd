/** One attempt at a scripted provider: real decoder, assembler and attempt, no socket. */
import { type Clock, systemClock } from '../../src/clock.ts'
import { toGatewayError } from '../../src/errors.ts'
import { FORMATS } from '../../src/formats/table.ts'
import type { Ending } from '../../src/gateway/answer/assemble.ts'
import type { Sink } from '../../src/gateway/answer/sink.ts'
import { AttemptRun, type AttemptTools } from '../../src/gateway/attempt.ts'
import { Drains } from '../../src/gateway/drains.ts'
import type { Exchange } from '../../src/gateway/exchange.ts'
import { openExchange } from '../../src/gateway/open-exchange.ts'
import { createLog } from '../../src/log/log.ts'
import { createMetrics } from '../../src/metrics/metrics.ts'
import { openMarks } from '../../src/metrics/stages.ts'
import { parseResponsesRequest } from '../../src/protocol/request.ts'
import type { Endpoint, FormatName, Quirk } from '../../src/providers/provider.ts'
import type { UpstreamCall, UpstreamClient, UpstreamHandler } from '../../src/upstream/transport.ts'

/** A client whose calls do nothing by themselves: the test plays the socket, through `handler`. */
export class ScriptedClient implements UpstreamClient {
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

/** The same second in each run, so that outcomes can be compared. */
const STILL: Clock = { ...systemClock, nowMs: () => 1_000 }

export function scriptedExchange(fields: Readonly<Record<string, unknown>> = {}): Exchange {
  const request = parseResponsesRequest({
    model: 'acme/scripted',
    input: 'hi',
    stream: true,
    ...fields,
  })
  return openExchange(STILL, {
    id: 'gen-1-x',
    caller: { keyHash: 'k', organizationId: 'o', workspaceId: 'w', memberId: null, limit: null },
    request,
    dialect: 'responses',
    withMetadata: false,
    dataRegion: null,
    marks: openMarks(0),
    signal: new AbortController().signal,
  })
}

export interface ScriptedRun {
  readonly run: AttemptRun
  readonly client: ScriptedClient
  readonly handler: UpstreamHandler
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
): ScriptedRun {
  const client = new ScriptedClient()
  const tools: AttemptTools = {
    client,
    formats: FORMATS,
    clock: systemClock,
    drains: new Drains(),
    log,
    metrics,
    timeouts: { upstreamHeadersMs: 1000, upstreamIdleMs: 1000 },
    hashEndUser: () => 'u',
  }
  const run = new AttemptRun(
    tools,
    exchange,
    { endpoint, credential: null, isByok: false, ownKey: null, status: null, error: null },
    sink,
    [],
  )
  const over = run.run().then(
    finish => run.assembler.finish(finish.reason, { ...ENDING, serviceTier: finish.serviceTier }),
    thrown => {
      if (run.committed) run.assembler.fail(toGatewayError(thrown), ENDING)
      else throw thrown
    },
  )
  const { handler } = client
  if (handler === null) throw new Error('the attempt did not start its call')
  handler.onHead({ status: 200, headers: {} })
  return { run, client, handler, over }
}
