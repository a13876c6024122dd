/** A live sink that keeps the events of an answer. */
import type { Sink } from '../../src/gateway/answer/sink.ts'
import type { StreamEvent } from '../../src/protocol/events.ts'

export class EventCollector implements Sink {
  readonly live = true
  readonly relays = null
  readonly events: StreamEvent[] = []
  ended = 0

  write(event: StreamEvent): boolean {
    this.events.push(structuredClone(event))
    return true
  }
  relay(): boolean {
    throw new Error('bytes went straight through')
  }
  hold(): void {
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
