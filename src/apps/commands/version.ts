/** The version of this package. */
import { readFileSync } from 'node:fs'

export function version(): string {
  // The path is the same relative to the sources and to the compiled files.
  const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8')
  return String((JSON.parse(text) as { version: unknown }).version)
}
