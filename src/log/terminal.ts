/** Log lines for people: what a terminal shows instead of JSON. Leaf. */
import type { DestinationStream } from 'pino'

/** A destination for the log that writes `12:00:01 info listening url=…` to a terminal. */
export function terminalLines(out: { write(text: string): unknown }): DestinationStream {
  return {
    write(line) {
      const { time, level, msg, ...fields } = JSON.parse(line) as Record<string, unknown>
      const words = Object.entries(fields).map(([name, value]) => `${name}=${String(value)}`)
      out.write(`${[String(time).slice(11, 19), level, msg, ...words].join(' ')}\n`)
    },
  }
}
