/**
 * Compiles rules into a Scanner, which finds their matches in a text, and replaces findings that are redacted. Public
 * entry point of this module. Pure: no I/O, no clock; the same on serve threads and in workers. Built-in rules take
 * time linear in the text; user-defined patterns take linear time per match.
 */
import { GatewayError } from '../../base/errors.ts'
import { BUILTIN_LABELS, type BuiltinSlug } from '../../protocol/management/guardrails.ts'
import { compilePatterns, patternProblem } from './custom.ts'
import { type Action, type Detect, type Finding, isStricter, type Lane, type RuleSet } from './detector.ts'
import { detectAddress, detectEmail, detectIpAddress, detectPhone } from './detectors/contact.ts'
import { detectCreditCard, detectSsn } from './detectors/numbers.ts'
import { detectPersonName } from './detectors/person-name.ts'
import { detectPromptInjection } from './detectors/prompt-injection.ts'
import { detectSecrets } from './detectors/secrets.ts'
import { Scanner } from './scanner.ts'

const INVALID_PATTERN_CODE = 'invalid_regex_pattern'

/** The field of a guardrail with the patterns of users. */
export type FilterField = 'content_filters' | 'output.content_filters'

/** Thrown for a pattern that cannot be run: 400, with INVALID_PATTERN_CODE in its metadata. */
export class InvalidPattern extends GatewayError {
  /** Index in `custom`. */
  readonly index: number

  constructor(index: number, reason: string, field: FilterField = 'content_filters') {
    super('invalid_request', `${field}[${index}].pattern: ${reason}`, {
      metadata: { code: INVALID_PATTERN_CODE },
    })
    this.name = 'InvalidPattern'
    this.index = index
  }
}

/**
 * Compiles a rule set. Takes milliseconds for many or long patterns, so do it once per rule set.
 * @throws InvalidPattern
 */
export function compileRules(rules: RuleSet, field: FilterField = 'content_filters'): Scanner {
  for (const [index, { pattern }] of rules.custom.entries()) {
    const reason = patternProblem(pattern)
    if (reason !== null) throw new InvalidPattern(index, reason, field)
  }
  const lanes: Lane[] = []
  for (const [rule, { slug, action, scope }] of rules.builtins.entries()) {
    const userOnly = scope === 'user_only'
    const replacement = BUILTIN_LABELS[slug]
    lanes.push({ detector: slug, rule, action, userOnly, replacement, detect: DETECTORS[slug] })
  }
  return new Scanner(lanes, compilePatterns(rules.custom, rules.builtins.length))
}

/** Returns the placeholder of a masked value; null if the value is replaced by its kind alone. */
export type PlaceholderOf = (kind: string, value: string) => string | null

/** A stretch of overlapping findings, and the finding that gives the replacement. */
interface Stretch {
  readonly start: number
  readonly finding: Finding
  readonly end: number
}

/**
 * Replaces every finding to redact or to mask. Of overlapping findings, the first one to redact gives the replacement,
 * or else the first one to mask. Without `placeholderOf`, a masked value is replaced by its kind alone.
 */
export function redact(
  text: string,
  findings: readonly Finding[],
  placeholderOf: PlaceholderOf = () => null,
): string {
  let redacted = ''
  let copiedTo = 0
  let open: Stretch | null = null
  const close = ({ start, end, finding }: Stretch): void => {
    redacted += text.slice(copiedTo, start) + replacementOf(finding, text.slice(start, end), placeholderOf)
    copiedTo = end
  }
  for (const finding of findings) {
    const { action, start, end } = finding
    if (action !== 'redact' && action !== 'mask') continue
    if (open === null || start >= open.end) {
      if (open !== null) close(open)
      open = { start, end, finding }
    } else {
      const replacing: Finding =
        open.finding.action === 'mask' && action === 'redact' ? finding : open.finding
      open = { start: open.start, end: Math.max(open.end, end), finding: replacing }
    }
  }
  if (open === null) return text
  close(open)
  return redacted + text.slice(copiedTo)
}

function replacementOf(
  { action, replacement, continuedText = '' }: Finding,
  value: string,
  placeholderOf: PlaceholderOf,
): string {
  // The replacement is empty if the finding began in an earlier text.
  if (action !== 'mask' || replacement === '') return replacement
  return placeholderOf(replacement.slice(1, -1), value + continuedText) ?? replacement
}

/** The strictest action of the findings; null if there are none. */
export function strictest(findings: readonly Pick<Finding, 'action'>[]): Action | null {
  let strictestAction: Action | null = null
  for (const { action } of findings)
    if (strictestAction === null || isStricter(action, strictestAction)) strictestAction = action
  return strictestAction
}

export const DETECTORS: Readonly<Record<BuiltinSlug, Detect>> = {
  email: detectEmail,
  phone: detectPhone,
  ssn: detectSsn,
  'credit-card': detectCreditCard,
  'ip-address': detectIpAddress,
  secrets: detectSecrets,
  'person-name': detectPersonName,
  address: detectAddress,
  'regex-prompt-injection': detectPromptInjection,
}
