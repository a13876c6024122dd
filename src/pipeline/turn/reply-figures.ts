/**
 * Collects statistics while a reply is being read: the model's output so far, and how the attempt is going. Pure. Hot
 * path.
 */
import type { AttemptRecord, Finish } from '../../exchange/exchange.ts'
import type { Delta, Usage } from '../../formats/format.ts'
import type { CallFigures } from '../accounting/charge.ts'
import { quartersIn } from '../accounting/estimate.ts'
import type { Content } from '../answer/assemble.ts'
import { harmless } from './provider-request.ts'

export class ReplyFigures implements CallFigures {
  usage: Usage | null = null
  finish: Finish | null = null
  outputQuarters = 0
  /** Characters in text, reasoning and arguments. */
  outputCharacters = 0
  isThoughtSeen = false
  sentBytes = 0
  isCut = false
  isStalled = false
  wasPaused = false
  pieceQuarters = 0
  /** Output before the last read, in quarters of tokens. */
  quartersBefore = 0
  /**
   * Monotonic milliseconds of the read that is being processed: its deltas arrived then. 0 for deltas that are
   * processed later.
   */
  readMs = 0

  addText(text: string): void {
    this.outputQuarters += quartersIn(text)
    this.outputCharacters += text.length
  }

  /** Counts output of the model. False if the delta contains more than text. */
  add(delta: Content): boolean {
    if (!('text' in delta)) return false
    this.addText(delta.text)
    if (delta.kind === 'reasoning' && delta.form === 'text') this.isThoughtSeen = true
    return delta.kind !== 'text' || delta.logprobs === null
  }
}

/** The figures of an attempt that did not begin. */
export const NOTHING_SAID: CallFigures = new ReplyFigures()

/** The service tiers of the API. Any other value could be arbitrary text, which was not scanned. */
const TIERS: ReadonlySet<string> = new Set([
  'auto',
  'default',
  'standard',
  'on_demand',
  'fast',
  'flex',
  'priority',
  'scale',
  'ultrafast',
  'batch',
  'provisioned',
])

/** Values that providers usually send, which cannot contain a key. */
const USUAL_ENDS: ReadonlySet<string> = new Set([
  'completed',
  'end_turn',
  'stop',
  'STOP',
  'length',
  'tool_calls',
  'tool_use',
])

/** The end of a reply, without names that repeat a key or could be arbitrary text. */
export function finishOf(
  { reason, native, serviceTier, stopSequence, appliedEdits }: Extract<Delta, { kind: 'finish' }>,
  record: AttemptRecord,
): Finish {
  return {
    reason,
    native: native !== null && USUAL_ENDS.has(native) ? native : harmless(native, record),
    serviceTier: serviceTier !== null && TIERS.has(serviceTier) ? serviceTier : null,
    ...(stopSequence == null ? undefined : { stopSequence: harmless(stopSequence, record) }),
    ...(appliedEdits === undefined ? undefined : { appliedEdits }),
  }
}
