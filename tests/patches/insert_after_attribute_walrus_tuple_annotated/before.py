from transformers import AutoModelForCausalLM as A

class Job:
    def __init__(self):
        self.model = A.from_pretrained("a")
        print(m := A.from_pretrained("b"))
        one, two = A.from_pretrained("c"), A.from_pretrained("d")
        last: object = A.from_pretrained("e")
        table["f"] = A.from_pretrained("f") if big else None
