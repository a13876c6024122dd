/** The version of this package. */
import { readFileSync } from 'node:fs'

export function version(): string {
  // As far above the sources as above what is compiled of them.
  const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')
  return String((JSON.parse(text) as { version: unknown }).version)
}
