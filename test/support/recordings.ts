/**
 * Recorded provider replies, read from the shared collection beside the repository. A clone without it skips the
 * recording tests with a visible line, and fails them if `CI=true`; the goldens in test/fixtures cover the same
 * behaviours.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { GatewayError } from '../../src/base/errors.ts'
import { awsMessage } from './aws-events.ts'

const FOLDER = join(import.meta.dirname, '../../../shared/fixtures')

export const recordingsPresent = existsSync(join(FOLDER, 'index.jsonl'))
export const RECORDINGS_MISSING = 'no recordings beside this clone: recorded replies are not checked'

/** For the `skip` of tests: why there are no recordings. False when there are, and in CI, where there have to be. */
export const withoutRecordings: string | false =
  recordingsPresent || process.env['CI'] === 'true' ? false : RECORDINGS_MISSING

/** Statuses that the interface knows for a failed inference request. */
export const FAILURE_STATUSES: ReadonlySet<number> = new Set([
  400, 402, 403, 408, 413, 422, 429, 502, 503, 524, 529,
])

export interface Recording {
  readonly file: string
  readonly name: string
  readonly format: string
  readonly provider: string
  readonly model: string | null
  readonly streamed: boolean
  /** Null when the source did not record it. */
  readonly httpStatus: number | null
  readonly contentType: string | null
  readonly features: readonly string[]
  readonly quirks: readonly string[]
  readonly fidelity: string
  /** The body as a provider would send it; framing is put back where the source had removed it. */
  bytes(): Buffer
  /** The request that was answered, when it is known. */
  request(): Record<string, unknown> | null
}

interface IndexRow {
  file: string
  request: string | null
  format: string
  provider: string
  model: string | null
  streamed: boolean
  http_status: number | null
  content_type: string | null
  features: string[]
  quirks: string[]
  fidelity: string
  url_path: string | null
}

/** The index counts Converse among the others, with Bedrock's older API. */
function formatOf({ format, provider, url_path }: IndexRow): string {
  const isConverse = format === 'other' && provider === 'bedrock' && !url_path?.endsWith('/invoke')
  return isConverse ? 'bedrock-converse' : format
}

/**
 * All recordings of a format (`openai-chat`, `anthropic-messages`, …), in the order of the index. None where they are
 * missing and may be.
 * @throws where `CI=true` and they are missing
 */
export function recordings(format: string): readonly Recording[] {
  if (withoutRecordings !== false) return []
  return readFileSync(join(FOLDER, 'index.jsonl'), 'utf8')
    .split('\n')
    .filter(line => line !== '')
    .map(line => JSON.parse(line) as IndexRow)
    .filter(row => formatOf(row) === format)
    .map(toRecording)
}

function toRecording(row: IndexRow): Recording {
  const requestFile = row.request
  return {
    file: row.file,
    name: row.file.replace(/^[^/]*\//, ''),
    format: formatOf(row),
    provider: row.provider,
    model: row.model,
    streamed: row.streamed,
    httpStatus: row.http_status,
    contentType: row.content_type,
    features: row.features,
    quirks: row.quirks,
    fidelity: row.fidelity,
    bytes: () => framed(row.file, formatOf(row)),
    request: () =>
      requestFile === null
        ? null
        : (JSON.parse(readFileSync(join(FOLDER, requestFile), 'utf8')) as Record<string, unknown>),
  }
}

/** `.chunks.jsonl` files hold one event JSON a line: the source removed the framing, this puts it back. */
function framed(file: string, format: string): Buffer {
  const bytes = readFileSync(join(FOLDER, file))
  if (!file.endsWith('.chunks.jsonl')) return bytes
  if (format === 'bedrock-converse') return binary(bytes.toString('utf8'))
  const named = format === 'openai-responses' || format === 'anthropic-messages'
  let text = ''
  for (const line of bytes.toString('utf8').split('\n')) {
    if (line.trim() === '') continue
    if (named) text += `event: ${(JSON.parse(line) as { type: string }).type}\n`
    text += `data: ${line}\n\n`
  }
  return Buffer.from(text)
}

/** Each line has the type of its event as its only name. */
function binary(lines: string): Buffer {
  const events = lines.split('\n').filter(line => line.trim() !== '')
  return Buffer.concat(
    events.flatMap(line =>
      Object.entries(JSON.parse(line) as Record<string, unknown>).map(([type, fields]) =>
        awsMessage(type, JSON.stringify(fields)),
      ),
    ),
  )
}

/** Checks that recorded HTTP errors become failures that the interface knows, and keep what the provider said. */
export function checkFailures(
  t: Test,
  failed: readonly Recording[],
  formatOf: (recording: Recording) => { failure(status: number, body: string): GatewayError },
): void {
  let right = 0
  for (const recording of failed) {
    const { name, httpStatus } = recording
    const failure = formatOf(recording).failure(httpStatus ?? 0, recording.bytes().toString('utf8'))
    if (t.ok(FAILURE_STATUSES.has(failure.status), `${name} -> ${failure.status}`)) right++
    t.not(failure.message, 'Provider returned error', `${name} keeps the provider's message`)
    t.equal(failure.metadata?.['provider_status'], httpStatus)
  }
  t.comment(`${right}/${failed.length} HTTP errors`)
}

/** The ways a body may arrive: whole, byte by byte, and cut at random borders (seeded, so that failures repeat). */
export function* arrivals(bytes: Buffer, seed = 1): Generator<{ name: string; chunks: Buffer[] }> {
  yield { name: 'whole', chunks: [bytes] }
  yield { name: 'byte by byte', chunks: Array.from(bytes, byte => Buffer.of(byte)) }
  const random = mulberry32(seed)
  for (let round = 0; round < 3; round++) {
    const chunks: Buffer[] = []
    for (let at = 0; at < bytes.length; ) {
      const size = 1 + Math.floor(random() * (round === 0 ? 7 : 200))
      chunks.push(bytes.subarray(at, at + size))
      at += size
    }
    yield { name: `random borders ${round + 1}`, chunks }
  }
}

function mulberry32(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296
  }
}
