/**
 * Masking: gives what guardrails found its placeholders, the same ones for the same values of a session, and writes
 * them into texts. See exchange/masks.ts for how the originals come back. Serve threads; only for callers with a rule
 * that masks.
 */
import { parseJson } from '../../base/json.ts'
import { whenReady } from '../../base/maybe-promise.ts'
import type { Exchange } from '../../exchange/exchange.ts'
import { Masks, placeholdersIn } from '../../exchange/masks.ts'
import type { Finding } from '../../features/guardrails/detector.ts'
import { type PlaceholderOf, redact, strictest } from '../../features/guardrails/rules.ts'
import type { RequestText } from '../../features/guardrails/texts/request-texts.ts'
import {
  type MaskTables,
  type MaskValue,
  SEALED_MAX_CHARS,
  SESSION_VALUES_MAX,
} from '../../storage/mask-tables.ts'
import type { SummarySeal } from '../compaction.ts'
import { ttlOf } from '../routing/sticky.ts'
import type { GuardRules } from './compiled-rules.ts'
import { evaluateTexts, type GuardTasks } from './evaluate.ts'

/** The dependencies of the placeholders of sessions. */
export interface MaskingDeps {
  readonly tables: MaskTables
  readonly seal: Pick<SummarySeal, 'seal' | 'open'>
  /** A keyed hash of a text. */
  readonly digest: (owner: string, text: string) => string
}

/** A text with the findings in it. */
export interface TextWithFindings extends Pick<RequestText, 'text' | 'isJson'> {
  readonly findings: readonly Finding[]
}

interface MaskFinding {
  readonly kind: string
  readonly value: string
  /** True for a text of the caller that has the form of a placeholder. */
  readonly isOwn: boolean
}

/** The rules for replies, and the means to evaluate them. */
interface ReplyRules {
  readonly rules: GuardRules
  readonly tasks: GuardTasks
}

/** One per exchange. */
export class Masking {
  readonly #deps: MaskingDeps | null
  /** Null if no rule looks at replies. */
  readonly #replies: ReplyRules | null
  /** Values that got their placeholders since the last check against the rules for replies. */
  newValues: { readonly token: string; readonly value: string }[] = []

  /** @param deps null: every request has placeholders of its own */
  constructor(deps: MaskingDeps | null, replies: ReplyRules | null) {
    this.#deps = deps
    this.#replies = replies
  }

  /**
   * The texts, redacted and masked; the placeholders are in `exchange.masks`. `isCallers`: the texts are the caller's
   * own, so what looks like a placeholder is none of ours.
   */
  cover(
    exchange: Exchange,
    texts: readonly TextWithFindings[],
    isCallers: boolean,
  ): readonly string[] | Promise<readonly string[]> {
    const masks = exchange.masks ?? exchange.clientRequest.masks ?? new Masks()
    const session = this.#deps === null ? undefined : exchange.request.session_id
    const needsMasks =
      session !== undefined || !masks.isEmpty || texts.some(({ findings }) => findings.some(isMask))
    if (!needsMasks) return texts.map(({ text, findings }) => redact(text, findings))
    const markedTexts =
      isCallers && exchange.clientRequest.masks == null ? texts.map(withOwnPlaceholders) : texts
    const maskFindings = maskFindingsIn(markedTexts)
    const recalling = session === undefined ? undefined : this.#recall(exchange, session, masks, maskFindings)
    return whenReady(recalling, () => {
      for (const finding of maskFindings) this.#give(masks, finding)
      if (!masks.isEmpty) exchange.masks = masks
      return whenReady(this.#check(exchange, masks), () =>
        markedTexts.map(text => coveredBy(text, (kind, value) => masks.tokenOf(kind, value))),
      )
    })
  }

  #give(masks: Masks, { kind, value, isOwn }: MaskFinding): void {
    if (isOwn) {
      masks.reserve(kind, value)
      return
    }
    if (masks.tokenOf(kind, value) !== null) return
    const token = masks.give(kind, value)
    if (token !== null) this.newValues.push({ token, value })
  }

  /** Values that the rules for replies redact, block or cannot check do not come back. */
  #check({ signal }: Exchange, masks: Masks): void | Promise<void> {
    const newValues = this.newValues
    this.newValues = []
    if (this.#replies === null || newValues.length === 0) return
    const { rules, tasks } = this.#replies
    const texts = newValues.map(({ value }) => ({ text: value, who: 'other' as const }))
    return whenReady(evaluateTexts(tasks, rules, texts, signal), ({ findings, failure }) => {
      for (const [index, { token }] of newValues.entries()) {
        const verdict = strictest(findings[index] ?? [])
        if (failure !== null || verdict === 'block' || verdict === 'redact') masks.withhold(token)
      }
    })
  }

  /** Adds the placeholders of the session, once these values have theirs. */
  #recall(
    { caller, request }: Exchange,
    session: string,
    masks: Masks,
    maskFindings: readonly MaskFinding[],
  ): void | Promise<void> {
    if (this.#deps === null) return
    const { tables, seal, digest } = this.#deps
    const owner = [caller.organizationId, caller.keyHash, session]
    const id = (text: string): string => digest(caller.keyHash, `\0masks\0${session}\0${text}`).slice(0, 22)
    const byId = new Map<string, MaskFinding>()
    const values: MaskValue[] = []
    for (const finding of maskFindings) {
      const { kind, value, isOwn } = finding
      const valueId = id(`${kind}\0${value}`)
      if (byId.has(valueId) || values.length >= SESSION_VALUES_MAX) continue
      byId.set(valueId, finding)
      const ciphertext = seal.seal(value, owner)
      if (ciphertext.length <= SEALED_MAX_CHARS)
        values.push({ id: valueId, kind, preferred: isOwn ? value : '', sealed: ciphertext })
    }
    return whenReady(tables.assign(id(''), values, ttlOf(request), caller.keyHash), table => {
      for (const [valueId, token, sealed] of table ?? []) {
        const finding = byId.get(valueId)
        if (finding !== undefined) {
          masks.take(finding.kind, finding.value, token)
          if (!finding.isOwn) this.newValues.push({ token, value: finding.value })
        } else if (this.#replies === null) masks.learn(token, () => seal.open(sealed, owner))
        else {
          const value = seal.open(sealed, owner)
          if (value === null) continue
          masks.learn(token, value)
          this.newValues.push({ token, value })
        }
      }
    })
  }
}

function isMask({ action }: Finding): boolean {
  return action === 'mask'
}

/** The text, with findings for what looks like a placeholder. */
function withOwnPlaceholders(text: TextWithFindings): TextWithFindings {
  const ownFindings = placeholdersIn(text.text).map(
    ({ kind, start, end }): Finding => ({
      detector: 'custom',
      pattern: OWN_PATTERN_NAME,
      action: 'mask',
      start,
      end,
      replacement: `[${kind}]`,
      rule: -1,
    }),
  )
  if (ownFindings.length === 0) return text
  return {
    ...text,
    findings: [...text.findings, ...ownFindings].sort((a, b) => a.start - b.start || b.end - a.end),
  }
}

/** The name of the findings that `withOwnPlaceholders` adds. */
const OWN_PATTERN_NAME = 'placeholder'

/** The values to mask. Texts that look like a placeholder come first, because their numbers are in use. */
function maskFindingsIn(texts: readonly TextWithFindings[]): readonly MaskFinding[] {
  const ownFindings: MaskFinding[] = []
  const maskFindings: MaskFinding[] = []
  for (const text of texts) {
    if (!text.findings.some(isMask)) continue
    coveredBy(text, (kind, value) => {
      const [firstPlaceholder] = placeholdersIn(value)
      const isOwn = firstPlaceholder?.token === value && firstPlaceholder.kind === kind
      ;(isOwn ? ownFindings : maskFindings).push({ kind, value, isOwn })
      return null
    })
  }
  return [...ownFindings, ...maskFindings]
}

function coveredBy({ text, findings, isJson }: TextWithFindings, placeholderOf: PlaceholderOf): string {
  return redact(text, findings, (kind, value) =>
    placeholderOf(kind, isJson === true ? withoutEscapes(value) : value),
  )
}

/** The value of a piece of a JSON string. */
function withoutEscapes(value: string): string {
  if (!value.includes('\\')) return value
  const plain = parseJson(`"${value}"`)
  return typeof plain === 'string' ? plain : value
}
