/** Names of API keys and workspaces by id, for views that receive only ids. */
import { useEffect, useState } from './html.js'

const PAGE = 100
/** Beyond 1,000 of each, a view shows ids. */
const PAGES_MAX = 10

const NOTHING = { keys: new Map(), workspaces: new Map(), isKnown: false, version: null }

/** @returns keys by hash and workspaces by id, each with its record; empty until loaded */
export function useNames(calls, version = 0) {
  const [names, setNames] = useState(NOTHING)
  useEffect(() => {
    const leaving = new AbortController()
    const { signal } = leaving
    Promise.all([
      all(calls, 'keys', { include_disabled: true }, signal),
      all(calls, 'workspaces', {}, signal),
    ]).then(
      ([keys, workspaces]) => {
        if (signal.aborted) return
        setNames({
          keys: new Map(keys.map(key => [key.hash, key])),
          workspaces: new Map(workspaces.map(each => [each.id, each])),
          isKnown: true,
          version,
        })
      },
      // Without names, ids are shown.
      () => undefined,
    )
    return () => leaving.abort()
  }, [calls, version])
  return names
}

async function all(calls, path, query, signal) {
  const found = []
  for (let page = 0; page < PAGES_MAX; page++) {
    const { data, total_count: total } = await calls.api('GET', path, {
      query: { ...query, limit: PAGE, offset: page * PAGE },
      signal,
    })
    found.push(...data)
    if (found.length >= total || data.length === 0) break
  }
  return found
}

/** The name of a key, or the beginning of its hash. */
export function keyName(names, hash) {
  if (hash === null || hash === undefined) return '–'
  return names.keys.get(hash)?.name ?? `${hash.slice(0, 8)}… (deleted)`
}

export function workspaceName(names, id) {
  if (id === null || id === undefined) return '–'
  return names.workspaces.get(id)?.name ?? id
}

/**
 * The default guardrail of a workspace is shown with the workspace's name: its own name contains an id that nobody
 * recognizes.
 */
export function guardrailName(names, { name, is_workspace_default: isDefault, workspace_id: id }) {
  return isDefault ? `Default of ${workspaceName(names, id)}` : name
}
