/** Labels encrypted provider content in a reply with the provider that can read it. One for each attempt. Hot path. */
import { hash } from 'node:crypto'
import type { AttemptRecord, Candidate } from '../../exchange/exchange.ts'
import type { Delta } from '../../formats/format.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import { marked, SEALED_BY } from '../../protocol/makers.ts'
import type { DialectName, ResponsesRequest } from '../../protocol/request.ts'

const TAG_LENGTH = 10

/** Names who can read what an endpoint seals: its provider, with this credential or the shared key. */
export function makerOf({ endpoint, credential }: Pick<Candidate, 'endpoint' | 'credential'>): string {
  const id = credential === null ? '' : credential.id
  return hash('sha256', `${endpoint.provider.slug}\n${id}`, 'base64url').slice(0, TAG_LENGTH)
}

export class SealMarks {
  readonly #record: AttemptRecord
  /** The client may keep nothing of a thought but its seal. */
  readonly #sealsThoughts: boolean
  readonly #thoughts = new Set<number>()

  constructor(record: AttemptRecord, dialect: DialectName, { include }: Pick<ResponsesRequest, 'include'>) {
    this.#record = record
    this.#sealsThoughts =
      DIALECT_ABILITIES[dialect].thoughtsInSeals === true &&
      include?.includes('reasoning.encrypted_content') === true
  }

  open(delta: Extract<Delta, { kind: 'open' }>): Delta {
    const { start, item } = delta
    if (start.type === 'reasoning') this.#thoughts.add(item)
    if (start.type !== 'function_call' || start.extra === null) return delta
    const extra = marked(start.extra, makerOf(this.#record))
    return extra === start.extra ? delta : { ...delta, start: { ...start, extra } }
  }

  close(delta: Extract<Delta, { kind: 'close' }>): Delta {
    const { item, fields } = delta
    if (fields === null || !this.#thoughts.has(item)) return delta
    const maker = makerOf(this.#record)
    const { signature, encrypted_content: encrypted } = fields
    const isWhole =
      this.#sealsThoughts && typeof signature === 'string' && signature !== '' && encrypted == null
    const told = marked(fields, maker)
    return { ...delta, fields: isWhole ? { ...told, [SEALED_BY]: { maker, signature } } : told }
  }
}
