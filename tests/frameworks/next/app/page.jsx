import { subscribe } from './actions.js';

// The page imports the action, so the build compiles it.
export default function Page() {
  return (
    <form action={subscribe}>
      <button type="submit">subscribe</button>
    </form>
  );
}
