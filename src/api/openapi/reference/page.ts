/**
 * The reference page: the OpenAPI document as HTML, without inline scripts or external resources. Its only script, the
 * filter of the contents, is optional. Pure.
 */
import type { JsonSchema } from '../json-schema.ts'
import { LANGUAGES, type PlacedOperation, READER_URL, requestExamples } from './examples.ts'
import { type Fields, fields, isObject, list, safe } from './html.ts'
import { PAGE_STYLE } from './page-style.ts'

const RESPONSES_PATH = '#/components/responses/'
const METHODS = ['head', 'get', 'post', 'put', 'patch', 'delete']
/** Deeper objects are shown by name without fields. Named schemas have their own place. */
const MAX_DEPTH = 8

/** Display names of the LANGUAGES. */
const LANGUAGE_NAMES = { curl: 'curl', python: 'Python', javascript: 'JavaScript' } as const

/**
 * The page with READER_URL instead of the gateway's URL.
 * @param document as built by createDocument
 */
export function referencePage(document: JsonSchema): string {
  const info = fields(document['info'])
  const operations = operationsOf(document)
  const tags = list(document['tags']).map(fields)
  const components = fields(document['components'])
  const schemas = Object.entries(fields(components['schemas']))
  const failures = Object.entries(fields(components['responses']))
  const groups = tags.map(tag => group(tag, operations)).join('\n')
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${safe(info['title'])}: reference of the interface</title>
<style>${PAGE_STYLE}</style>
<script type="module" src="docs/filter.js"></script>
</head>
<body>
<a class="skip" href="#main">Skip to the operations</a>
<header>
<h1>${safe(info['title'])}: reference</h1>
<p>${safe(info['summary'])} ${safe(info['description'])}</p>
<p>The same for programs: <code>GET ${READER_URL}/v1/openapi.json</code>, without a key. Licence: ${safe(fields(info['license'])['identifier'])}.</p>
<p>In the examples, words in capitals are variables of your environment: <code>KEY</code> is an API key, <code>MANAGEMENT_KEY</code> a management key, and <code>ID</code> or <code>HASH</code> come from an answer before.</p>
</header>
<div class="columns">
<nav aria-label="Operations">
<p id="filter-place" hidden><label for="filter">Filter</label> <input id="filter" type="search" autocomplete="off"> <span id="filter-count" role="status" class="quiet"></span></p>
<fieldset><legend>Examples in</legend>${LANGUAGES.map(languageChoice).join('')}</fieldset>
${tags.map(tag => contents(tag, operations)).join('\n')}
<p><a href="#failures">Errors</a></p>
<p><a href="#schemas">Schemas</a></p>
</nav>
<main id="main">
${groups}
<section aria-labelledby="failures">
<h2 id="failures">Errors</h2>
<ul>${failures.map(([name, failure]) => failureRow(name, fields(failure))).join('')}</ul>
</section>
<section aria-labelledby="schemas">
<h2 id="schemas">Schemas</h2>
${schemas.map(([name, schema]) => component(name, fields(schema))).join('\n')}
</section>
</main>
</div>
</body>
</html>
`
}

function languageChoice(language: (typeof LANGUAGES)[number], index: number): string {
  return `<label><input type="radio" name="language" id="in-${language}"${index === 0 ? ' checked' : ''}> ${LANGUAGE_NAMES[language]}</label> `
}

function operationsOf(document: JsonSchema): readonly PlacedOperation[] {
  return Object.entries(fields(document['paths'])).flatMap(([path, item]) =>
    METHODS.flatMap(method => {
      const operation = fields(item)[method]
      return isObject(operation) ? [{ method: method.toUpperCase(), path, operation }] : []
    }),
  )
}

function operationsWith(
  { name }: Fields,
  operations: readonly PlacedOperation[],
): readonly PlacedOperation[] {
  return operations.filter(({ operation }) => list(operation['tags']).includes(name))
}

function contents(tag: Fields, operations: readonly PlacedOperation[]): string {
  const links = operationsWith(tag, operations).map(({ method, path, operation }) => {
    const { operationId: id, summary } = operation
    const words = safe(`${method} ${path} ${String(id)} ${String(summary)}`.toLowerCase())
    return `<li data-words="${words}"><a href="#${safe(id)}"><span class="method ${method}">${method}</span> ${safe(path)}</a></li>`
  })
  return `<details><summary>${safe(tag['name'])}</summary><ul>${links.join('')}</ul></details>`
}

function group(tag: Fields, operations: readonly PlacedOperation[]): string {
  const name = safe(tag['name'])
  const id = `tag-${name.replace(/\W+/g, '-').toLowerCase()}`
  const articles = operationsWith(tag, operations).map(article)
  return `<section aria-labelledby="${id}">
<h2 id="${id}">${name}</h2>
<p>${safe(tag['description'])}</p>
${articles.join('\n')}
</section>`
}

function article(placed: PlacedOperation): string {
  const { method, path, operation } = placed
  const id = safe(operation['operationId'])
  const about = operation['description'] === undefined ? '' : `<p>${safe(operation['description'])}</p>`
  const body = fields(operation['requestBody'])
  return `<article aria-labelledby="${id}">
<div class="title"><h3 id="${id}"><span class="method ${method}">${method}</span> <code>${safe(path)}</code></h3><a href="#${id}" aria-label="Link to ${id}">#</a></div>
<p><strong>${safe(operation['summary'])}.</strong> ${keyOf(operation)} <span class="quiet">operationId ${id}</span></p>
${about}
${requests(placed, id)}
${parameters(list(operation['parameters']).map(fields))}
${operation['requestBody'] === undefined ? '' : `<h4>Body</h4><p>${safe(body['description'])}</p>${contentOf(body, 'body', id)}`}
${answers(fields(operation['responses']), id)}
</article>`
}

function requests(placed: PlacedOperation, id: string): string {
  const examples = requestExamples(placed)
  return LANGUAGES.map(
    language =>
      `<pre class="${language}" tabindex="0" role="region" aria-label="Request in ${LANGUAGE_NAMES[language]}, ${id}">${safe(examples[language])}</pre>`,
  ).join('')
}

const KEY_NAMES: Readonly<Record<string, string>> = { apiKey: 'API key', managementKey: 'management key' }

function keyOf(operation: Fields): string {
  const names = list(operation['security']).flatMap(requirement => Object.keys(fields(requirement)))
  const kinds = names.flatMap(name => KEY_NAMES[name] ?? [])
  return kinds.length === 0
    ? 'Needs no key.'
    : `Needs ${kinds
        .map(kind => `a ${kind}`)
        .join(' or ')
        .replace('a API', 'an API')}.`
}

function parameters(described: readonly Fields[]): string {
  if (described.length === 0) return ''
  const rows = described.map(parameter => {
    const need = parameter['required'] === true ? ' <em>required</em>' : ''
    return `<li><code>${safe(parameter['name'])}</code> <span class="type">in ${safe(parameter['in'])}, ${typeOf(fields(parameter['schema']))}</span>${need}: ${safe(parameter['description'])}</li>`
  })
  return `<details><summary>Parameters (${described.length})</summary><ul>${rows.join('')}</ul></details>`
}

function answers(responses: Fields, id: string): string {
  const successes: string[] = []
  const failures: string[] = []
  for (const [status, value] of Object.entries(responses)) {
    const answer = fields(value)
    const target = answer['$ref']
    if (typeof target === 'string') {
      failures.push(`<a href="#failure-${safe(target.slice(RESPONSES_PATH.length))}">${safe(status)}</a>`)
    } else {
      successes.push(
        `<h4>Answer ${safe(status)}</h4><p>${safe(answer['description'])}</p>${contentOf(answer, 'answer', `${id}-${status}`)}`,
      )
    }
  }
  return `${successes.join('\n')}
<p>Errors: ${failures.join(', ')}</p>`
}

function failureRow(name: string, failure: Fields): string {
  const schema = fields(fields(fields(failure['content'])['application/json'])['schema'])
  return `<li id="failure-${safe(name)}"><code>${safe(name)}</code> ${safe(failure['description'])} ${typeOf(schema)}</li>`
}

function contentOf(holder: Fields, subject: string, label: string): string {
  return Object.entries(fields(holder['content']))
    .map(([media, value]) => {
      const { schema, examples } = fields(value)
      const boxes = Object.entries(fields(examples)).map(([name, example]) => {
        const { value: sample } = fields(example)
        const text = typeof sample === 'string' ? sample : JSON.stringify(sample, null, 2)
        const title = `Example of the ${subject}: ${safe(name)}`
        return `<details><summary>${title}</summary><pre tabindex="0" role="region" aria-label="${title}, ${safe(label)}">${safe(text)}</pre></details>`
      })
      const { description: about } = fields(schema)
      const kind = `${typeOf(fields(schema))}${about === undefined ? '' : ` ${safe(about)}`}`
      const fieldList = fieldsOf(fields(schema), 0)
      const details =
        fieldList === '' ? '' : `<details><summary>Fields of the ${subject}</summary>${fieldList}</details>`
      return `<p><code>${safe(media)}</code>: <span class="type">${kind}</span></p>${details}${boxes.join('')}`
    })
    .join('\n')
}

function component(name: string, schema: Fields): string {
  const id = safe(name)
  return `<details><summary>${id}</summary><div id="schema-${id}">${describe(schema, 0)}</div></details>`
}

/** The type and, for an object, its fields. */
function describe(schema: Fields, depth: number): string {
  const about = schema['description'] === undefined ? '' : ` ${safe(schema['description'])}`
  return `<span class="type">${typeOf(schema)}</span>${about}${fieldsOf(schema, depth)}`
}

function fieldsOf(schema: Fields, depth: number): string {
  if (depth >= MAX_DEPTH) return ''
  const requiredNames = new Set(list(schema['required']))
  const rows = Object.entries(fields(schema['properties'])).map(([name, value]) => {
    const requiredMark = requiredNames.has(name) ? ' <em>required</em>' : ''
    return `<li><code>${safe(name)}</code>${requiredMark}: ${describe(fields(value), depth + 1)}</li>`
  })
  const ownFields = rows.length === 0 ? '' : `<ul>${rows.join('')}</ul>`
  const items = isObject(schema['items']) ? fieldsOf(schema['items'], depth + 1) : ''
  const members = list(schema['anyOf']).map(member => fieldsOf(fields(member), depth + 1))
  return ownFields + items + members.join('')
}

/** A short type name, with links to named schemas. */
function typeOf(schema: Fields): string {
  const { $ref: target, const: word, enum: values, anyOf, items, type, contentSchema } = schema
  if (typeof target === 'string') return link(target)
  if (isObject(contentSchema)) return `stream of ${typeOf(contentSchema)}`
  if (word !== undefined) return `<code>${safe(JSON.stringify(word))}</code>`
  if (Array.isArray(values))
    return values.map(value => `<code>${safe(JSON.stringify(value))}</code>`).join(' or ')
  if (Array.isArray(anyOf)) return [...new Set(anyOf.map(member => typeOf(fields(member))))].join(' or ')
  const names = Array.isArray(type) ? type.map(String) : [typeof type === 'string' ? type : 'any value']
  const typeNames = names.map(name =>
    name === 'array' && isObject(items) ? `array of ${typeOf(items)}` : name,
  )
  return typeNames.join(' or ') + bounds(schema)
}

const BOUND_WORDS: readonly (readonly [keyword: string, words: string])[] = [
  ['minimum', 'at least'],
  ['exclusiveMinimum', 'above'],
  ['maximum', 'at most'],
  ['exclusiveMaximum', 'below'],
  ['minLength', 'characters at least'],
  ['maxLength', 'characters at most'],
  ['minItems', 'elements at least'],
  ['maxItems', 'elements at most'],
  ['pattern', 'pattern'],
  ['format', 'format'],
  ['default', 'default'],
]

function bounds(schema: Fields): string {
  const texts = BOUND_WORDS.flatMap(([keyword, words]) =>
    schema[keyword] === undefined ? [] : [`${words} ${safe(schema[keyword])}`],
  )
  return texts.length === 0 ? '' : ` (${texts.join(', ')})`
}

function link(target: string): string {
  const name = safe(target.slice(target.lastIndexOf('/') + 1))
  return `<a href="#schema-${name}">${name}</a>`
}
