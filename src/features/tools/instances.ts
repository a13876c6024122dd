/** Names for tools that a request may list several times, each as its own function. Pure. */
import { GatewayError } from '../../base/errors.ts'
import type { ToolEntry } from '../../exchange/server-tool.ts'

/** Characters of a function name that every provider accepts, minus the length of a suffix. */
const FUNCTION_NAME_MAX = 60

/**
 * The name of each entry, trimmed; null if it has none.
 * @throws GatewayError `invalid_request` with the path of an entry whose name is empty or already used
 */
export function instanceNames(tool: string, entries: readonly ToolEntry[]): readonly (string | null)[] {
  const seen = new Set<string | null>()
  return entries.map(({ tool: { parameters }, path }) => {
    const givenName = parameters?.['name']
    const name = typeof givenName === 'string' ? givenName.trim() : null
    if (name === '') throw refused(path, 'must not be blank')
    if (seen.has(name)) {
      throw refused(
        path,
        name === null
          ? `is required, because another ${tool} has no name either`
          : `another ${tool} has this name`,
      )
    }
    seen.add(name)
    return name
  })
}

function refused(path: string, why: string): GatewayError {
  return new GatewayError('invalid_request', `${path}.parameters.name: ${why}`)
}

/** `advisor`, or `advisor_legal_review` for the one with the name `legal review`. */
export function functionName(tool: string, name: string | null): string {
  return name === null ? tool : `${tool}_${name.replaceAll(' ', '_')}`.slice(0, FUNCTION_NAME_MAX)
}
