/** Shows the progress of a run on standard error: a bar on a terminal, otherwise one line per row. */
import { drawsOver, ProgressBar } from '../src/apps/commands/terminal/progress-bar.ts'
import { costOf, type Row } from './results.ts'

export class Progress {
  readonly #totalSeconds: number
  readonly #startedAt = performance.now()
  readonly #bar = new ProgressBar(process.stderr, process.env)
  #doneSeconds = 0
  #scenarioEnd = 0

  constructor(totalSeconds: number) {
    this.#totalSeconds = totalSeconds
  }

  scenario(name: string, seconds: number): void {
    // What the scenario before had planned is over, whatever it took.
    this.#doneSeconds = this.#scenarioEnd
    this.#scenarioEnd += seconds
    this.#show(name)
  }

  row(row: Row, seconds: number): void {
    this.#doneSeconds += seconds
    const cost = costOf(row)
    const words = [
      row.scenario,
      row.subject,
      `#${row.round + 1}`,
      cost === null ? '' : `${cost.toFixed(1)} µs`,
      row.rejected.length === 0 ? '' : `rejected: ${row.rejected.join(', ')}`,
    ]
    this.#show(words.filter(Boolean).join(' '))
  }

  note(text: string): void {
    this.#bar.note(text)
  }

  end(): void {
    this.#bar.clear()
  }

  #show(what: string): void {
    const share = Math.min(1, this.#doneSeconds / this.#totalSeconds)
    const timeLeft = eta(this.#totalSeconds, this.#doneSeconds, (performance.now() - this.#startedAt) / 1000)
    const percent = `${Math.round(share * 100)}`.padStart(3)
    if (drawsOver(process.stderr, process.env)) {
      this.#bar.show(share, [
        { text: `${percent} %`, rank: 0 },
        { text: `${timeLeft} left`, rank: 1 },
        { text: what, rank: 2 },
      ])
    } else process.stderr.write(`${percent} %, ${timeLeft} left  ${what}\n`)
  }
}

/** Minutes and seconds that are left when the rest runs as late as what is done. Pure. */
function eta(totalSeconds: number, doneSeconds: number, spentSeconds: number): string {
  const pace = doneSeconds > 0 ? Math.max(0.5, spentSeconds / doneSeconds) : 1
  const seconds = Math.max(0, Math.round((totalSeconds - doneSeconds) * pace))
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`
}
