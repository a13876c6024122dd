/** A live sink that keeps the events of an answer. */
import type { Sink } from '../../src/pipeline/answer/sink.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'

export class EventCollector implements Sink {
  readonly live = true
  readonly relays = null
  readonly events: StreamEvent[] = []
  ended = 0

  write(event: StreamEvent): boolean {
    this.events.push(copied(event))
    return true
  }
  relay(): boolean {
    throw new Error('bytes went straight through')
  }
  cork(): void {
    // Everything is kept at once.
  }
  flush(): boolean {
    return true
  }
  onDrain(): void {
    // It is never slow.
  }
  end(): void {
    this.ended++
  }
}

/** A deep copy: later changes of an item do not reach it. What lies under symbols, no client sees, but dialects do. */
function copied<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value
  const copy: object = Array.isArray(value) ? [] : {}
  for (const key of Reflect.ownKeys(value)) {
    if (Array.isArray(value) && key === 'length') continue
    Reflect.set(copy, key, copied(Reflect.get(value, key)))
  }
  return copy as T
}
