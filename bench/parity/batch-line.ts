/** Sends one request as a batch of its own, waits for the end of the batch, and reads the result as a client would. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Case } from './cases.ts'
import { bodyText, type Client } from './client.ts'
import type { DialectReader } from './dialects.ts'
import { API_KEY, modelOf, type ParityGateway } from './gateway.ts'
import { fields, list, NOTHING, type Said, text } from './said.ts'

const POLL_MS = 50
/** Three tries of a request that fails take a few seconds; some recorded failures ask to wait for 48 s after each. */
const PATIENCE_MS = 600_000
const HEADERS = { authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json' }

interface BatchLine {
  readonly said: Said
  /** Null: it was answered. */
  readonly errorType: string | null
}

/** Makes the batch. @returns its id @throws Error when it is refused */
export async function createLine(
  client: Client,
  gateway: ParityGateway,
  reader: DialectReader,
  one: Case,
): Promise<string> {
  const body = {
    endpoint: `/v1${reader.path}`,
    model: modelOf(one),
    requests: [{ custom_id: 'line', body: reader.body(modelOf(one), false) }],
  }
  const reply = await client.ask({ url: `${gateway.url}/batches`, headers: HEADERS, body })
  if (reply.status !== 202) throw new Error(`POST /batches: ${reply.status} ${bodyText(reply.body)}`)
  return text(fields(JSON.parse(bodyText(reply.body)))['id'])
}

/** @throws Error when the batch has another number of results, or does not end */
export async function endedLine(
  client: Client,
  gateway: ParityGateway,
  reader: DialectReader,
  id: string,
): Promise<BatchLine> {
  for (let waitedMs = 0; waitedMs < PATIENCE_MS; waitedMs += POLL_MS) {
    const reply = await client.ask({ method: 'GET', url: `${gateway.url}/batches/${id}`, headers: HEADERS })
    const batch = fields(JSON.parse(bodyText(reply.body)))
    if (batch['results'] != null) return lineOf(batch, reader)
    await pause(POLL_MS)
  }
  throw new Error(`the batch ${id} does not end`)
}

function lineOf(batch: ReturnType<typeof fields>, reader: DialectReader): BatchLine {
  const results = list(batch['results'])
  const [result = {}] = results
  const counts = fields(batch['request_counts'])
  if (results.length !== 1 || counts['total'] !== 1 || result['custom_id'] !== 'line')
    throw new Error(`a batch of one request has other results: ${JSON.stringify(batch)}`)
  if (result['response'] != null) {
    const { status_code: status, body } = fields(result['response'])
    const answer = reader.read({ status: Number(status), body: JSON.stringify(body), streamed: false })
    return { said: answer, errorType: null }
  }
  const { message, error_type: errorType } = fields(result['error'])
  return { said: { ...NOTHING, finish: 'error', error: text(message) }, errorType: text(errorType) }
}
