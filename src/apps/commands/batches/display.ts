/**
 * Shows a watched batch: as one self-updating line on a terminal, as plain lines elsewhere, or as JSON. The lines
 * themselves are pure.
 */
import { type Clock, isoInstant, type Timer } from '../../../base/clock.ts'
import { type BarPart, type ProgressBar, percent } from '../terminal/progress-bar.ts'
import { count, duration } from '../terminal/text.ts'
import type { BatchDisplay, BatchMoment } from './watching.ts'

/** How often the times are updated between two answers of the gateway. */
const REDRAW_INTERVAL_MS = 1_000
/** Minimum time between two lines of a batch in the same state. */
const MIN_LINE_INTERVAL_MS = 5_000

/** The text for one moment; the most important part is dropped last. */
function momentParts(moment: BatchMoment, clock: Clock): BarPart[] {
  const { batch, rate, endsAtMs } = moment
  const { completed, failed, total } = batch
  const ended = completed + failed
  const parts: (BarPart | null)[] = [
    { text: percent(ended, total), rank: 0 },
    { text: `${count(ended)}/${count(total)}`, rank: 1 },
    {
      text: `${count(failed)} failed`,
      rank: failed === 0 ? 7 : 3,
      ...(failed === 0 ? {} : { color: 'red' }),
    },
    rate === null ? null : { text: `${rateText(rate)}/s`, rank: 5 },
    endsAtMs === null ? null : { text: `ETA ${duration(endsAtMs - clock.monotonicMs())}`, rank: 2 },
    { text: `${duration(clock.nowMs() - batch.createdMs)} elapsed`, rank: 6 },
    statePart(moment, clock),
  ]
  return parts.filter(part => part !== null)
}

function statePart({ batch: { status, waiting }, trouble }: BatchMoment, clock: Clock): BarPart {
  if (trouble !== null) return { text: trouble, rank: 2, color: 'yellow' }
  if (waiting === null) return { text: status, rank: 4 }
  const reason = waiting.reason.replaceAll('_', ' ')
  return {
    text: `waiting for ${duration(clock.nowMs() - waiting.sinceMs)}: ${reason}`,
    rank: 2,
    color: 'yellow',
  }
}

function rateText(rate: number): string {
  return rate < 10 ? rate.toFixed(1) : count(Math.round(rate))
}

/** One line that is redrawn in place. */
export function barDisplay(bar: ProgressBar, clock: Clock): BatchDisplay {
  let timer: Timer | null = null
  const show = (moment: BatchMoment): void => {
    timer?.cancel()
    const { completed, failed, total } = moment.batch
    bar.show(total === 0 ? 1 : (completed + failed) / total, momentParts(moment, clock))
    timer = clock.after(REDRAW_INTERVAL_MS, () => show(moment))
  }
  return {
    show,
    note: text => bar.note(text),
    end() {
      timer?.cancel()
      bar.end()
    },
  }
}

interface DisplayOutput {
  /** Gets one line without its line end. */
  readonly line: (text: string) => void
  readonly note: (text: string) => void
}

/** Prints a line for each state change, and otherwise at most one every few seconds. */
export function textDisplay(output: DisplayOutput, clock: Clock): BatchDisplay {
  return changesDisplay(output, clock, moment => {
    const words = momentParts(moment, clock).map(({ text }) => text)
    return `${isoInstant(clock.nowMs())} ${moment.batch.id} ${words.join(', ')}`
  })
}

/** Like `textDisplay`; each line is the batch as JSON, without its results. The last one is printed by the summary. */
export function jsonDisplay(output: DisplayOutput, clock: Clock): BatchDisplay {
  return changesDisplay(output, clock, ({ batch }) =>
    batch.isTerminal ? null : JSON.stringify(batch.document),
  )
}

function changesDisplay(
  { line, note }: DisplayOutput,
  clock: Clock,
  write: (moment: BatchMoment) => string | null,
): BatchDisplay {
  let lastLine: { readonly status: string; readonly figures: string; readonly atMs: number } | null = null
  return {
    show(moment) {
      if (moment.trouble !== null) return
      const { completed, failed, waiting } = moment.batch
      const status = waiting === null ? moment.batch.status : waiting.reason
      const figures = `${completed} ${failed}`
      const atMs = clock.monotonicMs()
      if (
        lastLine?.status === status &&
        (lastLine.figures === figures || atMs - lastLine.atMs < MIN_LINE_INTERVAL_MS)
      )
        return
      lastLine = { status, figures, atMs }
      const text = write(moment)
      if (text !== null) line(text)
    },
    note,
    end: () => undefined,
  }
}
