/**
 * Labels encrypted provider content in a reply with the provider that can read it. One instance per attempt. Hot path.
 */
import { hash } from 'node:crypto'
import type { AttemptRecord, Candidate, Exchange } from '../../exchange/exchange.ts'
import type { Delta } from '../../formats/format.ts'
import { DIALECT_ABILITIES } from '../../protocol/dialect-abilities.ts'
import type { CompactedBy } from '../../protocol/json/request-notes.ts'
import { marked, SEALED_BY } from '../../protocol/sealed-content.ts'

const TAG_LENGTH = 10

/** Identifies who can read data that an endpoint encrypts: its provider, with this credential or the shared key. */
export function makerOf({ endpoint, credential }: Pick<Candidate, 'endpoint' | 'credential'>): string {
  const id = credential === null ? '' : credential.id
  return hash('sha256', `${endpoint.provider.slug}\n${id}`, 'base64url').slice(0, TAG_LENGTH)
}

/** Seals a provider's own summary. */
type SealSummary = (summary: CompactedBy & { readonly content: string }) => string

export class SealMarks {
  readonly #record: AttemptRecord
  /** True if the client may keep only the seal of a thought. */
  readonly #sealsThoughts: boolean
  readonly #thoughts = new Set<number>()
  /** Seals summaries that providers make; null: the client gets them in the form of its provider's API. */
  readonly #seal: SealSummary | null
  #summary = -1

  constructor(
    record: AttemptRecord,
    { dialect, request: { include } }: Pick<Exchange, 'dialect' | 'request'>,
    seal: SealSummary | null,
  ) {
    this.#record = record
    this.#seal = DIALECT_ABILITIES[dialect].compacts ? seal : null
    this.#sealsThoughts =
      DIALECT_ABILITIES[dialect].thoughtsInSeals === true &&
      include?.includes('reasoning.encrypted_content') === true
  }

  open(delta: Extract<Delta, { kind: 'open' }>): Delta {
    const { start, item } = delta
    if (start.type === 'reasoning') this.#thoughts.add(item)
    if (start.type === 'hosted' && start.item.type === 'compaction' && this.#seal !== null) {
      this.#summary = item
      return { ...delta, start: { ...start, item: { ...start.item, encrypted_content: '' } } }
    }
    if (start.type !== 'function_call' || start.extra === null) return delta
    const extra = marked(start.extra, makerOf(this.#record))
    return extra === start.extra ? delta : { ...delta, start: { ...start, extra } }
  }

  close(delta: Extract<Delta, { kind: 'close' }>): Delta {
    const { item, fields } = delta
    if (item === this.#summary && fields !== null) return this.#sealed(delta, fields)
    if (fields === null || !this.#thoughts.has(item)) return delta
    const maker = makerOf(this.#record)
    const { signature, encrypted_content: encrypted } = fields
    const isWhole =
      this.#sealsThoughts && typeof signature === 'string' && signature !== '' && encrypted == null
    const told = marked(fields, maker)
    return { ...delta, fields: isWhole ? { ...told, [SEALED_BY]: { maker, signature } } : told }
  }

  /** Seals a provider's own summary, so that only the workspace can send it and only the provider can read it. */
  #sealed(
    delta: Extract<Delta, { kind: 'close' }>,
    { native: _, ...fields }: Readonly<Record<string, unknown>>,
  ): Delta {
    const { encrypted_content: content } = fields
    if (this.#seal === null || typeof content !== 'string' || content === '') return { ...delta, fields }
    const provider = this.#record.endpoint.provider.name
    const summary = { maker: makerOf(this.#record), provider, content }
    return { ...delta, fields: { ...fields, encrypted_content: this.#seal(summary) } }
  }
}
