/** A health update that is being collected and has not been sent to the other threads yet. Hot path. */
import type { BreakerEvent, CallerNote, Cause, HealthNote } from './notes.ts'

type Writable<T> = { -readonly [Key in keyof T]: T[Key] }

/** The caller that a count belongs to; without a name it is one of many. */
interface Named {
  readonly name: string
  readonly owner: string
}

export class UnsentNote {
  goodCalls = 0
  faultyCalls = 0
  readonly latencies: number[] = []
  readonly throughputs: number[] = []
  /** True: it must not wait for others. */
  isUrgent = false
  #ok = 0
  #failed = 0
  #limited = 0
  readonly #callers: Writable<CallerNote>[] = []
  #restMs = 0
  #restCause: Cause = 'limit'

  /** True if it says nothing. */
  get isEmpty(): boolean {
    return this.#callers.length === 0 && this.#ok + this.#failed + this.#limited === 0 && this.#restMs === 0
  }

  count(caller: Named, ok: number, failed: number, limited: number): void {
    if (caller.name === '') {
      this.#ok += ok
      this.#failed += failed
      this.#limited += limited
      return
    }
    const note = this.#of(caller)
    note.ok += ok
    note.failed += failed
    note.limited += limited
  }

  /** @param caller null: all have to wait */
  rest(caller: Named | null, restMs: number, cause: Cause): void {
    this.isUrgent = true
    if (caller === null) {
      this.#restCause = cause
      this.#restMs = Math.max(this.#restMs, restMs)
    } else if (caller.name !== '') {
      const note = this.#of(caller)
      note.restCause = cause
      note.restMs = Math.max(note.restMs, restMs)
    }
  }

  plain(key: string, events: readonly BreakerEvent[]): HealthNote {
    return {
      key,
      ok: this.#ok,
      failed: this.#failed,
      limited: this.#limited,
      callers: this.#callers,
      goodCalls: this.goodCalls,
      faultyCalls: this.faultyCalls,
      events,
      restMs: this.#restMs,
      restCause: this.#restCause,
      latencies: this.latencies,
      throughputs: this.throughputs,
    }
  }

  #of({ name, owner }: Named): Writable<CallerNote> {
    const known = this.#callers.find(each => each.name === name)
    if (known !== undefined) return known
    const added = { name, owner, ok: 0, failed: 0, limited: 0, restMs: 0, restCause: 'limit' as const }
    this.#callers.push(added)
    return added
  }
}
