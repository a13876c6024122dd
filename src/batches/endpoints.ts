/** Runs batch lines of each endpoint through the gateway. A new endpoint is one row in process/wiring/batch.ts. */

import type { GatewayError } from '../base/errors.ts'
import type { Dialect, FailureDetails } from '../dialects/dialect.ts'
import type { EmbeddingsDialect } from '../dialects/embeddings.ts'
import type { ClientRequest } from '../exchange/exchange.ts'
import { type ExchangeSummary, FinalSink } from '../pipeline/answer/sink.ts'
import type { Gateway } from '../pipeline/respond.ts'
import type { BatchEndpoint, BatchPreferences } from '../protocol/management/batches.ts'
import { withPreferences } from './line-request.ts'

/** A line in the form in which its endpoint runs it. */
export interface LineCall extends Omit<ClientRequest, 'request' | 'dialect'> {
  /** The body, including the model. */
  readonly body: Readonly<Record<string, unknown>>
  readonly preferences: BatchPreferences | null
}

/** The reply to a line: a body, or an error whose message uses the field names of the dialect. */
export type LineReply = { readonly summary: ExchangeSummary | undefined } & (
  | { readonly error: null; readonly body: unknown }
  | { readonly error: GatewayError; readonly message: string }
)

/** Runs one line to its end. Rejects with a GatewayError if the endpoint does not accept the body. */
type RunLine = (call: LineCall) => Promise<LineReply>

export type LineEndpoints = Readonly<Record<BatchEndpoint, RunLine>>

/** A line has no headers of its own. */
const NO_HEADERS: ReadonlyMap<string, string> = new Map()

/** Runs lines of an endpoint that has a dialect. */
export function runByDialect(dialect: Dialect, gateway: Gateway): RunLine {
  return async ({ body, preferences, ...call }) => {
    const request = withPreferences(dialect.parse(body, NO_HEADERS), preferences)
    const clientRequest: ClientRequest = { ...call, dialect: dialect.name, request }
    const sink = new FinalSink()
    const outcome = await gateway.respond(clientRequest, sink)
    const { summary } = outcome
    if (outcome.answered) {
      if (sink.response !== null) return { summary, error: null, body: dialect.body(sink.response, request) }
      const error = outcome.refusal ?? (call.context.signal.reason as GatewayError)
      return { summary, error, message: error.message }
    }
    const details: FailureDetails = { id: call.context.id, metadata: null, usage: null, request }
    return { summary, error: outcome.error, message: messageOf(dialect, outcome.error, details) }
  }
}

/** Runs lines of embeddings, which have no turns. */
export function runEmbeddings(dialect: EmbeddingsDialect, gateway: Gateway): RunLine {
  return async ({ body, preferences, ...call }) => {
    const parsedBody = dialect.parse(body)
    const request = withPreferences(parsedBody.request, preferences)
    const outcome = await gateway.embed({
      ...call,
      dialect: dialect.name,
      request,
      settings: parsedBody.settings,
    })
    const { summary } = outcome
    if (outcome.answered) {
      return { summary, error: null, body: JSON.parse(dialect.document(outcome.result).toString()) }
    }
    const details: FailureDetails = { id: call.context.id, metadata: null, usage: null, request }
    return { summary, error: outcome.error, message: messageOf(dialect, outcome.error, details) }
  }
}

/** The message as the dialect words it: paths of fields have the names that its clients know. */
function messageOf(dialect: Pick<Dialect, 'failure'>, error: GatewayError, details: FailureDetails): string {
  const envelope = dialect.failure(error, details) as { readonly error?: { readonly message?: unknown } }
  const message = envelope.error?.message
  return typeof message === 'string' ? message : error.message
}
