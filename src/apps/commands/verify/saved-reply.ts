/** A saved reply with its proof: a JSON document, an event stream, or one JSON document per event. Pure. */
import { createHash } from 'node:crypto'
import {
  digestLine,
  type ProofScope,
  proofPosition,
  replyDigest,
} from '../../../protocol/management/proof.ts'

/** The parts of a saved reply that its proof covers. */
export interface SavedReply {
  /** A compact JWS, not verified yet. */
  readonly proof: string
  /** Number of events after the one with the proof, which it cannot cover. */
  readonly later: number
  /** True if the reply is a stream. */
  readonly isStream: boolean
  digest(of: ProofScope): string
}

/** Parses a saved reply; a string is the reason why it has no proof. */
export function readSavedReply(text: string): SavedReply | string {
  const values = valuesOf(text)
  if (values === null) return 'is neither a JSON reply nor an event stream'
  const proofIndex = values.findIndex(value => proofPosition(value)?.metadata['proof'] !== undefined)
  const position = proofPosition(values[proofIndex])
  const proof = position?.metadata['proof']
  if (position === null)
    return 'has no gateway_metadata.proof: send the request with X-Gateway-Proof: true and X-Gateway-Metadata: enabled'
  if (typeof proof !== 'string') return 'has a proof that is not a string'
  return {
    proof,
    later: values.length - proofIndex - 1,
    isStream: values.length > 1,
    digest(of) {
      if (of === 'reply') return replyDigest(position.reply)
      const hash = createHash('sha256')
      for (const value of values.slice(0, proofIndex)) hash.update(digestLine(value))
      return hash.update(digestLine(position.withProof(null))).digest('hex')
    },
  }
}

function valuesOf(text: string): readonly unknown[] | null {
  const document = parseOrUndefined(text)
  if (document !== undefined) return Array.isArray(document) ? document : [document]
  const lines = text.replace(/^\ufeff/, '').split(/\r\n|\r|\n/)
  const rows = lines.filter(line => line.trim() !== '')
  return rows.every(row => row.startsWith('{')) ? documents(rows) : documents(dataOf(lines))
}

function documents(rows: readonly string[]): readonly unknown[] | null {
  const values = rows.map(parseOrUndefined)
  return values.length === 0 || values.includes(undefined) ? null : values
}

/** The data of each event, without comments and the end mark. */
function dataOf(lines: readonly string[]): string[] {
  const events: string[] = []
  let data: string[] = []
  for (const line of [...lines, '']) {
    if (line.startsWith('data:')) data.push(line.slice(line.startsWith('data: ') ? 6 : 5))
    else if (line === '' && data.length > 0) {
      if (data.join('\n') !== '[DONE]') events.push(data.join('\n'))
      data = []
    }
  }
  return events
}

/** Undefined: it is not JSON. */
function parseOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return undefined
  }
}
