/** Names for tools that a request may list several times, each as its own function. Pure. */
import { GatewayError } from '../../base/errors.ts'
import type { ToolEntry } from '../../exchange/server-tool.ts'

/** Providers accept names of 64 characters; a suffix may follow. */
const MAX_FUNCTION_NAME_CHARS = 60

/**
 * The name of each entry, trimmed; null if it has none.
 * @throws GatewayError `invalid_request` with the path of an entry whose name is empty or already used
 */
export function instanceNames(tool: string, entries: readonly ToolEntry[]): readonly (string | null)[] {
  const usedNames = new Set<string | null>()
  return entries.map(({ tool: { parameters }, path }) => {
    const givenName = parameters?.['name']
    const name = typeof givenName === 'string' ? givenName.trim() : null
    if (name === '') throw nameError(path, 'must not be blank')
    if (usedNames.has(name)) {
      throw nameError(
        path,
        name === null
          ? `is required, because another ${tool} has no name either`
          : `another ${tool} has this name`,
      )
    }
    usedNames.add(name)
    return name
  })
}

function nameError(path: string, reason: string): GatewayError {
  return new GatewayError('invalid_request', `${path}.parameters.name: ${reason}`)
}

/** The function of an instance: `advisor`, or `advisor_legal_review` for the instance named `legal review`. */
export function functionName(tool: string, name: string | null): string {
  return name === null ? tool : `${tool}_${name.replaceAll(' ', '_')}`.slice(0, MAX_FUNCTION_NAME_CHARS)
}
