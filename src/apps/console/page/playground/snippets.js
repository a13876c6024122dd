/** The playground's request as code. The code never contains the key: it reads it from the environment. */
import { html, useState } from '../html.js'

const LANGUAGES = {
  curl: body => `curl -N "$URL/v1/responses" \\
  -H "Authorization: Bearer $API_KEY" \\
  -H 'Content-Type: application/json' \\
  -d '${JSON.stringify(body, null, 2).replaceAll("'", "'\\''")}'`,
  Python: ({ stream: _, ...body }) => `import os
from openai import OpenAI

client = OpenAI(base_url=os.environ["URL"] + "/v1", api_key=os.environ["API_KEY"])
stream = client.responses.create(
${Object.entries(body)
  .map(([name, value]) => `    ${name}=${pythonOf(value)},`)
  .join('\n')}
    stream=True,
)
for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)`,
  JavaScript: body => `${'import OpenAI from'} 'openai'

const client = new OpenAI({ baseURL: \`\${process.env.URL}/v1\`, apiKey: process.env.API_KEY })
const stream = await client.responses.create(${JSON.stringify(body, null, 2)})
for await (const event of stream) {
  if (event.type === 'response.output_text.delta') process.stdout.write(event.delta)
}`,
}

function pythonOf(value) {
  if (value === true) return 'True'
  if (value === false) return 'False'
  if (value === null) return 'None'
  if (typeof value !== 'object') return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map(pythonOf).join(', ')}]`
  return `{${Object.entries(value)
    .map(([name, fieldValue]) => `${JSON.stringify(name)}: ${pythonOf(fieldValue)}`)
    .join(', ')}}`
}

export function Snippets({ body }) {
  const [language, setLanguage] = useState('curl')
  const [notice, setNotice] = useState('')
  const code = LANGUAGES[language](body)
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(code)
      setNotice('Copied')
    } catch {
      setNotice('The browser does not allow copying here: select the text')
    }
  }
  return html`
    <section aria-labelledby="code-heading">
      <div class="bar">
        <h3 id="code-heading">As code</h3>
        <span class="choice" role="group" aria-label="Language">
          ${Object.keys(LANGUAGES).map(
            name => html`
              <button key=${name} type="button" aria-pressed=${name === language} onClick=${() => setLanguage(name)}>
                ${name}
              </button>
            `,
          )}
        </span>
        <button type="button" onClick=${copy}>Copy the code</button>
        <span class="dim" role="status">${notice}</span>
      </div>
      <pre class="code" tabindex="0" aria-label=${`The request in ${language}`}><code>${code}</code></pre>
      <p class="dim">URL is the address of the public port, API_KEY the key.</p>
    </section>
  `
}
